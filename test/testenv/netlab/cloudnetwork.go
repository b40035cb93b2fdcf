//go:build linux

package netlab

import (
	"context"
	"fmt"
	"sync"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// cloudNetwork is a network of the cloud: its gateway, which follows the route table, with a delay
// if the profile has one.
type cloudNetwork struct {
	*cloudRouter
	lag *lag

	following sync.Mutex
	plane     hcloudsim.PlaneNetwork
	closed    bool
}

func newCloudNetwork(
	ctx context.Context, plane hcloudsim.PlaneNetwork, b behavior,
) (*cloudNetwork, error) {
	router, err := newCloudRouter(ctx, plane.Gateway)
	if err != nil {
		return nil, fmt.Errorf("network %d: %w", plane.ID, err)
	}
	router.path = b.path
	n := &cloudNetwork{cloudRouter: router, plane: plane}
	n.lag = newLag(inTurn(b.routes), func() { n.apply(ctx) })
	return n, nil
}

// firstNetwork returns the network of the cluster; the zero value once it is deleted.
func firstNetwork(now hcloudsim.DataPlane) hcloudsim.PlaneNetwork {
	if len(now.Networks) == 0 {
		return hcloudsim.PlaneNetwork{}
	}
	return now.Networks[0]
}

// follow makes the gateway forward by the network's state, after the delays of the profile.
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
