//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// CloudLabOptions shape a CloudLab.
type CloudLabOptions struct {
	// Dir holds every file and log, as an absolute path. It exists, and is the caller's to remove.
	Dir string
	// Cloud configures the simulator. Cloud.OnChange is called once the packets follow;
	// Cloud.Foretell is set.
	Cloud hcloudsim.Options
	// Network is what happens to packets. What it leaves out is as in profile.Default.
	Network profile.Network
	// NoTarget is what clients get from a service none of whose targets takes connections.
	NoTarget balancer.NoTarget
}

// CloudLab is a simulated cloud without a cluster: every server that anybody makes through its API
// is a namespace with its cables, in which its user data runs.
//
// A server has the interface "eth0" with the public addresses that the cloud gave it, and enp7s0,
// enp8s0, ... in networks, as it is attached. User data that begins with "#!" is run once, as soon
// as the server is up, where cloud-init runs it, with process IDs and mounts of its own, and with file
// systems of its own at /run, /tmp, /var/lib and /sys; nothing else parts it from this machine. What it
// prints is in UserDataLog.
// With all that it has started it ends when the server is switched off or deleted.
//
// Every network has a router of its own, so ranges may overlap; only load balancers can't have the
// same private address in two networks.
type CloudLab struct {
	Cloud *hcloudsim.Simulator

	options   CloudLabOptions
	behaves   behavior
	internet  *internet
	balancers *balancers
	api       *http.Server
	endpoint  string

	mu       sync.Mutex // held while cables change
	stopped  bool
	networks map[int64]*cloudNetwork
	servers  map[int64]*cloudServer
	programs []*process.Process
	err      error // the first of what nobody waits for
}

// StartCloudLab starts a cloud in which nothing is. It takes root, and doesn't need Enter.
func StartCloudLab(ctx context.Context, o CloudLabOptions) (_ *CloudLab, err error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	if err := absolute(map[string]string{"Dir": o.Dir}); err != nil {
		return nil, fmt.Errorf("start a cloud: %w", err)
	}
	l := &CloudLab{
		options: o, networks: map[int64]*cloudNetwork{}, servers: map[int64]*cloudServer{},
	}
	defer func() {
		if err != nil {
			l.Stop()
		}
	}()
	if l.behaves, err = newBehavior(o.Network); err != nil {
		return nil, fmt.Errorf("start a cloud: %w", err)
	}
	for _, step := range []func(context.Context) error{l.startNetwork, l.startSimulator, l.startAPI} {
		if err := step(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("start a cloud in %s: %w", o.Dir, err)
		}
	}
	return l, nil
}

func (l *CloudLab) startNetwork(ctx context.Context) (err error) {
	if l.internet, err = newInternet(ctx); err != nil {
		return err
	}
	if err := l.internet.limit(ctx, l.behaves.publicMTU); err != nil {
		return err
	}
	l.balancers, err = newBalancers(l.options.Dir, l.internet, func(network int64) *cloudRouter {
		// Only who holds mu asks.
		if n := l.networks[network]; n != nil {
			return n.cloudRouter
		}
		return nil
	})
	return err
}

func (l *CloudLab) startSimulator(ctx context.Context) error {
	cloud := l.options.Cloud
	cloud.Foretell = len(l.behaves.routes) > 0
	reported := cloud.OnChange
	cloud.OnChange = func(now hcloudsim.DataPlane) {
		l.follow(ctx, now)
		if reported != nil {
			reported(now)
		}
	}
	l.Cloud = hcloudsim.New(cloud)
	l.balancers.start(ctx, balancer.Options{Cloud: l.Cloud, Header: l.behaves.header, NoTarget: l.options.NoTarget})
	return nil
}

// startAPI lets programs outside reach the simulator.
func (l *CloudLab) startAPI(ctx context.Context) error {
	listener, err := l.internet.outside.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the simulator: %w", err)
	}
	l.endpoint = "http://" + listener.Addr().String()
	l.api = &http.Server{Handler: l.Cloud, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = l.api.Serve(listener) }()
	return nil
}

// Stop ends every program and removes every namespace.
func (l *CloudLab) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	for _, p := range l.programs {
		p.Kill()
	}
	if l.api != nil {
		_ = l.api.Close()
	}
	if l.balancers != nil {
		l.balancers.close()
	}
	for _, s := range l.servers {
		s.halt()
	}
	for _, n := range l.networks {
		n.close()
	}
	if l.internet != nil {
		l.internet.close()
	}
}

// Err says that packets may not go where the simulated cloud sends them, because the lab itself has
// failed; a test that fails for no other reason asks it.
func (l *CloudLab) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.err, l.internet.failed())
	for _, n := range l.networks {
		err = errors.Join(err, n.failed())
	}
	return err
}

// Endpoint is the URL of the cloud's API, with its version, for programs outside.
func (l *CloudLab) Endpoint() string { return l.endpoint + "/v1" }

// Outside is the namespace of the host outside, at OutsideIPv4 and OutsideIPv6.
func (l *CloudLab) Outside() *netns.Namespace { return l.internet.outside }

// DialContext is that of the host outside, for addresses without names.
func (l *CloudLab) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return l.Outside().Dial(ctx, network, address)
}

// RunOutside starts a program on the host outside, which ends with the lab. Its log is in Dir unless
// the command says otherwise.
func (l *CloudLab) RunOutside(c process.Command) (*process.Process, error) {
	if c.Dir == "" {
		c.Dir = l.options.Dir
	}
	c.Args = append([]string{"--net=" + l.Outside().Path(), "--", c.Path}, c.Args...)
	c.Path = "nsenter"
	p, err := process.Start(c)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs = append(l.programs, p)
	return p, nil
}
