//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
)

// options are the command's.
type options struct {
	setups []setup
	focus  *regexp.Regexp
	part   bool // not every spec runs, so nothing is recorded
	width  int
	logs   string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func parse() (o options, err error) {
	focus := flag.String("focus", "", "Run only specs whose names match the regular expression, and record nothing.")
	name := flag.String("setup", "", "Run on this set-up only: "+cloud+", "+metal+" or "+addresses+".")
	flag.IntVar(&o.width, "at-once", 4, "How many specs run at a time.")
	flag.StringVar(&o.logs, "logs", "", "An existing folder for what specs say; empty: nobody keeps it.")
	flag.Parse()
	o.part = *focus != ""
	if o.focus, err = regexp.Compile(*focus); err != nil {
		return o, fmt.Errorf("-focus: %w", err)
	}
	o.setups = slices.DeleteFunc(setups(), func(s setup) bool { return *name != "" && s.name != *name })
	if len(o.setups) == 0 {
		return o, fmt.Errorf("-setup: there is no %q", *name)
	}
	return o, nil
}

func run(ctx context.Context) error {
	o, err := parse()
	if err != nil {
		return err
	}
	if err := machine.Supported(); err != nil {
		return fmt.Errorf("no machines here: %w", err)
	}
	images, err := kubeadm.Enter(ctx, pack)
	if err != nil {
		return err
	}
	defer os.RemoveAll(images)
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	return o.all(ctx, images)
}

// all runs the specs on every set-up, and records what became of them.
func (o options) all(ctx context.Context, images string) error {
	began := time.Now()
	tree, err := tree(ctx)
	if err != nil {
		return err
	}
	var problems []string
	for _, s := range o.setups {
		t, err := o.one(ctx, s, images)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("\n%s: %s, after %s\n", s.name, t.counts(), time.Since(began).Round(time.Second))
		problems = append(problems, t.problems(reasons(), !o.part)...)
		if o.part {
			continue
		}
		known, err := recorded(tree)
		if err == nil {
			err = known.with(t.settled(reasons())).write(tree)
		}
		if err != nil {
			return err
		}
		fmt.Println("written: " + page)
	}
	if len(problems) > 0 {
		return fmt.Errorf("not as it should be:\n%s", strings.Join(problems, "\n"))
	}
	return nil
}

// one installs a cluster, and runs specs on it.
func (o options) one(ctx context.Context, s setup, images string) (tested, error) {
	dir, err := os.MkdirTemp("", "underlay-conformance-")
	if err != nil {
		return tested{}, err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("\n%s: installing a cluster\n", s.name)
	c, err := kubeadm.Start(ctx, kubeadm.Options{Dir: dir, Packed: images, Metal: s.metal})
	if err != nil {
		return tested{}, err
	}
	result, err := o.on(ctx, s, c, images, dir)
	if err != nil && ctx.Err() == nil {
		for _, server := range c.Servers {
			fmt.Fprintln(os.Stderr, server.Logs())
		}
	}
	return result, errors.Join(err, c.Stop())
}

func (o options) on(
	ctx context.Context, s setup, c *kubeadm.Cluster, images, dir string,
) (tested, error) {
	if err := s.install(ctx, c, images); err != nil {
		return tested{}, err
	}
	version, err := kubebinary.Version(ctx)
	if err != nil {
		return tested{}, err
	}
	runtime, err := c.On(ctx, kubeadm.First, "kubectl get node "+kubeadm.First+" -o jsonpath='{.status.nodeInfo.containerRuntimeVersion}'")
	if err != nil {
		return tested{}, err
	}
	r, err := newRunner(ctx, c, dir, o)
	if err != nil {
		return tested{}, err
	}
	chosen, err := r.list(ctx, s.filter)
	if err != nil {
		return tested{}, err
	}
	if s.families {
		chosen = inFamilies(chosen)
	}
	fmt.Printf("%s: %d specs\n", s.name, len(chosen))
	results, err := r.runAll(ctx, chosen)
	return tested{Setup: s.name, Kubernetes: version, Runtime: strings.Replace(runtime, "://", " ", 1), Results: results}, err
}
