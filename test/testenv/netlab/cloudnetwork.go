//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// cloudNetwork is a network of the cloud: its gateway, which follows the route table late if the
// cloud does.
type cloudNetwork struct {
	*cloudRouter
	lag *lag
	// at are the ports in vSwitches. Who holds the lab's mutex uses them.
	at map[hcloudsim.PlaneVSwitch]string

	following sync.Mutex
	plane     hcloudsim.PlaneNetwork
	closed    bool
}

func newCloudNetwork(ctx context.Context, plane hcloudsim.PlaneNetwork, b behavior) (*cloudNetwork, error) {
	router, err := newCloudRouter(ctx, plane.Gateway)
	if err != nil {
		return nil, fmt.Errorf("network %d: %w", plane.ID, err)
	}
	router.path = b.path
	n := &cloudNetwork{cloudRouter: router, at: map[hcloudsim.PlaneVSwitch]string{}, plane: plane}
	n.lag = newLag(inTurn(b.routes), func() { n.apply(ctx) })
	return n, nil
}

// firstNetwork is the one that a cluster is in; the zero value once it is gone.
func firstNetwork(now hcloudsim.DataPlane) hcloudsim.PlaneNetwork {
	if len(now.Networks) == 0 {
		return hcloudsim.PlaneNetwork{}
	}
	return now.Networks[0]
}

// follow makes the gateway forward as the network is now, or will be known to be a little later.
func (n *cloudNetwork) follow(ctx context.Context, plane hcloudsim.PlaneNetwork) {
	n.lag.follow(plane.Routes, plane.Building)
	n.following.Lock()
	n.plane = plane
	n.following.Unlock()
	n.apply(ctx)
}

func (n *cloudNetwork) apply(ctx context.Context) {
	n.following.Lock()
	defer n.following.Unlock()
	if n.closed {
		return
	}
	now := n.plane
	now.Routes = n.lag.routes()
	n.cloudRouter.follow(ctx, hcloudsim.DataPlane{Networks: []hcloudsim.PlaneNetwork{now}})
}

func (n *cloudNetwork) close() {
	n.following.Lock()
	defer n.following.Unlock()
	n.closed = true
	n.ns.Close()
}

// couple puts the gateway into vSwitches, and takes it out of those of others.
func (l *CloudLab) couple(ctx context.Context, n *cloudNetwork, wanted []hcloudsim.PlaneVSwitch) error {
	for v, port := range n.at {
		if slices.Contains(wanted, v) {
			continue
		}
		delete(n.at, v)
		if err := n.leaveVSwitch(ctx, port); err != nil {
			return fmt.Errorf("taking a network out of vSwitch %d: %w", v.ID, err)
		}
	}
	for _, v := range wanted {
		if n.at[v] != "" {
			continue
		}
		segment, err := l.segment(ctx, v.ID)
		if err == nil {
			err = n.joinVSwitch(ctx, v, segment, l.behaves.gateway)
		}
		if err != nil {
			return fmt.Errorf("putting a network into vSwitch %d: %w", v.ID, err)
		}
	}
	return nil
}

// joinVSwitch makes the gateway of a subnet. Nobody in the vSwitch is known to it.
func (n *cloudNetwork) joinVSwitch(ctx context.Context, v hcloudsim.PlaneVSwitch, segment *netns.Namespace, g Gateway) error {
	var port string
	for i := 0; port == "" || n.coupled[port].IsValid(); i++ {
		port = fmt.Sprintf("%s%d", vSwitch, i)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := plugInto(ctx, segment, fmt.Sprintf("n%d-%s", n.plane.ID, port[len(vSwitch):]), n.ns, port); err != nil {
		return err
	}
	if _, err := n.ns.Feed(ctx, g.script(ofOthers), "nft", "-f", "-"); err != nil {
		return err
	}
	// The route, which says what passes, is the layout's.
	err := n.batch(ctx, fmt.Sprintf("link set %[1]s mtu %[2]s\naddress add %[3]s/%[4]d dev %[1]s noprefixroute\n",
		port, roomyMTU, v.Gateway, v.Range.Bits()))
	if err != nil {
		return err
	}
	n.at[v], n.coupled[port] = port, v.Range
	return n.set(ctx, n.layout())
}

func (n *cloudNetwork) leaveVSwitch(ctx context.Context, port string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.coupled, port)
	err := n.set(ctx, n.layout())
	_, gone := n.ns.Run(ctx, "ip", "link", "delete", port)
	return errors.Join(err, gone)
}

// bridge is the switch of a vSwitch, in a namespace of its own.
const bridge = "bridge"

// segment is the vSwitch of an ID; there is one for each that anything is plugged into.
func (l *CloudLab) segment(ctx context.Context, id int64) (*netns.Namespace, error) {
	if ns := l.segments[id]; ns != nil {
		return ns, nil
	}
	ns, err := netns.Open()
	if err != nil {
		return nil, err
	}
	// A kernel without the setting has no such idea.
	for _, family := range []string{"ip", "ip6"} {
		if err := ns.Sysctl("net/bridge/bridge-nf-call-"+family+"tables", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if _, err := ns.Feed(ctx, fmt.Sprintf("link add %[1]s type bridge\nlink set %[1]s up\n", bridge), "ip", "-batch", "-"); err != nil {
		return nil, err
	}
	l.segments[id] = ns
	return ns, nil
}

// plugInto gives a namespace a cable to a vSwitch that any frame fits through.
func plugInto(ctx context.Context, segment *netns.Namespace, port string, ns *netns.Namespace, name string) error {
	if err := netns.Connect(ctx, ns, name, segment, port); err != nil {
		return err
	}
	_, err := segment.Feed(ctx, fmt.Sprintf("link set %[1]s mtu %[2]s master %[3]s\n", port, roomyMTU, bridge), "ip", "-batch", "-")
	return err
}
