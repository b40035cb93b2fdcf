package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

const (
	// startLimit is how long one program may take to become ready. On an idle
	// machine all three together take a few seconds.
	startLimit = 90 * time.Second
	// pollEvery is how often readiness is polled.
	pollEvery = 50 * time.Millisecond
)

var errStopped = errors.New("the control plane is stopped")

// ControlPlane is a running control plane. Its methods may be called from
// several goroutines, RestartAPIServer and Stop from one at a time.
type ControlPlane struct {
	options   Options
	binary    string
	dir       string
	temporary bool     // Stop removes dir
	records   string   // folder for the Record; empty: none is written
	starter   function // the test that the Record names
	port      *port
	ca        *authority
	admin     *rest.Config
	client    kubernetes.Interface

	mu      sync.Mutex
	running []*process.Process // in the order of their start
	stopped bool
	detach  func() bool // detaches from the context given to Start
}

// Start starts a control plane and returns when it is ready: after a few seconds, or minutes if the
// binary has to be built first. It runs until Stop is called or ctx ends. If Start fails,
// everything is stopped, and the folder with the logs that the error names remains.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	options, err := options.complete()
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	records, err := recordsFolder()
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	binary, err := kubebinary.Path(ctx, options.Progress)
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	began := time.Now()
	c := &ControlPlane{
		options: options, binary: binary, dir: options.Dir, records: records, starter: outermost(),
	}
	if err := c.start(ctx); err != nil {
		c.halt()
		return nil, fmt.Errorf("start a control plane in %s: %w", c.dir, err)
	}
	c.mu.Lock()
	c.detach = context.AfterFunc(ctx, c.Stop)
	c.mu.Unlock()
	fmt.Fprintf(options.Progress, "kube: control plane ready in %.1f s at %s\n", time.Since(began).Seconds(), c.URL())
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	if err := c.makeDir(); err != nil {
		return err
	}
	var err error
	if c.port, err = reservePort(c.options.Address); err != nil {
		return err
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	// etcd opens its socket before it is ready, and the API server waits for its responses by
	// itself, so it is enough that the socket exists.
	if err := c.run(ctx, etcd, c.etcdArgs(), c.socketExists); err != nil {
		return err
	}
	if err := c.run(ctx, apiServer, c.apiServerArgs(), c.apiServerReady); err != nil {
		return err
	}
	if c.options.WithoutControllerManager {
		return nil
	}
	return c.run(ctx, controllerManager, c.ControllerManagerArgs(), c.defaultServiceAccountExists)
}

func (c *ControlPlane) makeDir() error {
	var err error
	if c.dir == "" {
		c.temporary = true
		c.dir, err = os.MkdirTemp("", "underlay-controlplane-")
	} else if c.dir, err = filepath.Abs(c.dir); err == nil {
		err = os.MkdirAll(c.dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	return nil
}

// run starts one program and waits until ready returns true.
func (c *ControlPlane) run(
	ctx context.Context, name string, args []string, ready func(context.Context) bool,
) error {
	p, err := c.launch(name, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %s", startLimit))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !ready(ctx) {
		select {
		case <-ctx.Done():
			return p.Failure(context.Cause(ctx))
		case <-p.Done():
			return p.Failure(p.Died())
		case <-tick.C:
		}
	}
	return nil
}

// launch starts one program, unless Stop was called before.
func (c *ControlPlane) launch(name string, args []string) (*process.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("start %s: %w", name, errStopped)
	}
	p, err := process.Start(process.Command{
		Name: name, Path: c.binary, Args: append([]string{name}, args...), Dir: c.dir,
	})
	if err != nil {
		return nil, err
	}
	c.running = append(c.running, p)
	return p, nil
}

func (c *ControlPlane) socketExists(context.Context) bool {
	_, err := os.Stat(filepath.Join(c.dir, etcdSocket))
	return err == nil
}

func (c *ControlPlane) apiServerReady(ctx context.Context) bool {
	status := 0
	c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
	return status == http.StatusOK
}

// defaultServiceAccountExists shows that the controllers of kube-controller-manager run, which has
// no port for that.
func (c *ControlPlane) defaultServiceAccountExists(ctx context.Context) bool {
	_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err == nil
}

// Stop ends every program and, if the folder is a temporary one, removes it. It
// may be called more than once.
func (c *ControlPlane) Stop() {
	if !c.halt() {
		return
	}
	if c.temporary {
		if err := os.RemoveAll(c.dir); err != nil {
			fmt.Fprintln(c.options.Progress, "kube: remove the control plane's folder:", err)
		}
	}
}

// halt ends the programs, writes the Record, and reports whether this call did it.
func (c *ControlPlane) halt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.stopped = true
	if c.detach != nil {
		c.detach()
	}
	for _, p := range slices.Backward(c.running) {
		p.Kill()
	}
	if c.port != nil {
		c.port.release()
	}
	if err := c.record(); err != nil {
		fmt.Fprintln(c.options.Progress, "kube: record who asked for what:", err)
	}
	return true
}

// RestartAPIServer kills the API server, as a crash would, and restarts it with the same data at
// the same address.
func (c *ControlPlane) RestartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	for _, p := range c.running {
		if p.Name == apiServer {
			p.Kill()
		}
	}
	c.running = slices.DeleteFunc(c.running, (*process.Process).Ended)
	c.mu.Unlock()
	if err := c.run(ctx, apiServer, c.apiServerArgs(), c.apiServerReady); err != nil {
		return fmt.Errorf("restart the API server: %w", err)
	}
	return nil
}

// SignalAPIServer sends the API server a signal: after SIGSTOP it is unresponsive with its
// connections open, as behind a network that drops all packets, until SIGCONT.
func (c *ControlPlane) SignalAPIServer(s os.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.running {
		if p.Name == apiServer {
			return p.Signal(s)
		}
	}
	return fmt.Errorf("signal %s: it does not run", apiServer)
}

// Dir is the folder of all files: the logs of the programs are <program>.log there.
func (c *ControlPlane) Dir() string { return c.dir }

// URL is the API server's address, an https:// one on loopback or Options.Address.
func (c *ControlPlane) URL() string { return "https://" + c.port.address().String() }
