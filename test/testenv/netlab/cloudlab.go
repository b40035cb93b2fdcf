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
	// Dir holds all files and logs, as an absolute path. It must exist, and the caller removes it.
	Dir string
	// Cloud configures the simulator. Cloud.OnChange is called after the packets' paths have
	// changed; Cloud.Foretell is set.
	Cloud hcloudsim.Options
	// Network is the treatment of packets. Fields left out are as in profile.Default.
	Network profile.Network
	// NoTarget is the response to clients of a service that has no target which accepts
	// connections.
	NoTarget balancer.NoTarget
}

// CloudLab is a simulated cloud without a cluster: every server that a client creates through its
// API is a namespace with its cables, in which its user data runs.
//
// A server has the interface "eth0" with the public addresses that the cloud assigned, and enp7s0,
// enp8s0, ... in networks, in the order of attachment. User data that begins with "#!" is run once,
// as soon as the server is up, at the path that cloud-init uses, with process IDs and mounts of its
// own, and with file systems of its own at /run, /tmp, /var/lib and /sys; nothing else isolates it
// from this machine. Its output is in UserDataLog. It ends, with all processes that it has started,
// when the server is switched off or deleted.
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
	err      error // the first error that no caller returns
}

// StartCloudLab starts an empty cloud. It requires root, and doesn't need Enter.
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
		// The callers hold mu.
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
	l.balancers.start(ctx, balancer.Options{
		Cloud: l.Cloud, Header: l.behaves.header, NoTarget: l.options.NoTarget,
	})
	return nil
}

// startAPI makes the simulator reachable for programs outside.
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

// Err returns an error if the lab itself has failed, so that packets may not follow the simulated
// cloud. A test that would not fail otherwise checks it.
func (l *CloudLab) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.err, l.internet.failed())
	for _, n := range l.networks {
		err = errors.Join(err, n.failed())
	}
	return err
}

// Endpoint returns the URL of the cloud's API, with its version, for programs outside.
func (l *CloudLab) Endpoint() string { return l.endpoint + "/v1" }

// Outside returns the namespace of the external host, which has OutsideIPv4 and OutsideIPv6.
func (l *CloudLab) Outside() *netns.Namespace { return l.internet.outside }

// DialContext connects from the external host. It doesn't resolve names.
func (l *CloudLab) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return l.Outside().Dial(ctx, network, address)
}

// RunOutside starts a program on the external host, which ends with the lab. Its log is in Dir
// unless the command sets another path.
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
