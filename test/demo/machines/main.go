//go:build linux

// Command machines shows the first cluster of the tutorial on machines in namespaces: its own
// commands, with real kubeadm, kubelet and containerd, on the simulated cloud. It ends with a shell
// on the control-plane node, and removes everything when the shell ends.
//
// It requires root, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/test/demo/screen"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
)

func main() {
	once := flag.Bool("once", false, "end when everything was shown, without a shell")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *once); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, once bool) error {
	if err := machine.Supported(); err != nil {
		return fmt.Errorf("no machines here: %w", err)
	}
	images, err := kubeadm.Enter(ctx, func(ctx context.Context) (string, error) {
		fmt.Println("Packing images, which happens anew each time.")
		return kubeadm.Pack(ctx, os.Stderr)
	})
	if err != nil {
		return err
	}
	defer os.RemoveAll(images)
	dir, err := os.MkdirTemp("", "underlay-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	page, err := kubeadm.ReadPage(ctx, kubeadm.Tutorial)
	if err != nil {
		return err
	}
	c, err := kubeadm.Start(ctx, kubeadm.Options{Dir: dir, Packed: images})
	if err != nil {
		return err
	}
	color := os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(os.Stdout.Fd()))
	s := show{Cluster: c, page: page, painter: screen.Painter{Color: color}, began: time.Now()}
	err = s.play(ctx)
	if err == nil && !once {
		err = s.shell(ctx)
	}
	if err != nil && ctx.Err() == nil {
		for _, server := range c.Servers {
			fmt.Fprintln(os.Stderr, server.Logs())
		}
	}
	fmt.Println("\nremoving everything")
	return errors.Join(err, c.Stop())
}

// show is a cluster that is shown.
type show struct {
	*kubeadm.Cluster
	page    *kubeadm.Page
	painter screen.Painter
	began   time.Time
}

// play installs the cluster and shows its features.
func (s *show) play(ctx context.Context) error {
	acts := []struct {
		title string
		do    func(context.Context) error
	}{
		{"Three servers, made ready by deploy/cloud-init/node.yaml", s.rent},
		{"kubeadm init, by the shipped example", s.install},
		{"Underlay", s.underlay},
		{"The workers join", s.join},
		{"Pods on both workers, each with two addresses", s.pods},
		{"A load balancer, asked from outside", s.balance},
		{"underlayctl", s.look},
	}
	for i, act := range acts {
		fmt.Print(s.painter.Heading(i+1, len(acts), act.title))
		if err := act.do(ctx); err != nil {
			return err
		}
		fmt.Print(s.painter.Note(fmt.Sprintf("after %.1f s", time.Since(s.began).Seconds())))
	}
	return nil
}
