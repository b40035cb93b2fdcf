package simcluster

import (
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// watchdog sees every change of the route table and every Node that a
// controller deletes, and knows what may not happen: a route that leads to
// another server than that of the Node whose podCIDR it is, a route lost that
// led to a living Node, a Node lost whose server lives.
type watchdog struct {
	mu       sync.Mutex
	routes   map[netip.Prefix]netip.Addr
	harm     []string
	vanished int // routes that went, rightly or not
	quiet    bool
}

// Harm lists what should not have happened.
func (l *Cluster) Harm() []string {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	return append([]string(nil), l.watch.harm...)
}

// Vanished is how many routes went, rightly or not.
func (l *Cluster) Vanished() int {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	return l.watch.vanished
}

// ByHand does something to the cloud that is nobody's fault.
func (l *Cluster) ByHand(do func() error) error {
	l.watch.mu.Lock()
	l.watch.quiet = true
	l.watch.mu.Unlock()
	defer func() {
		l.watch.mu.Lock()
		defer l.watch.mu.Unlock()
		l.watch.quiet = false
	}()
	return do()
}

// changed compares the route table with what it was.
func (l *Cluster) changed(now hcloudsim.DataPlane) {
	after := map[netip.Prefix]netip.Addr{}
	for _, n := range now.Networks {
		for _, r := range n.Routes {
			after[r.Destination] = r.Gateway
		}
	}
	l.watch.mu.Lock()
	before, quiet := l.watch.routes, l.watch.quiet
	l.watch.routes = after
	l.watch.mu.Unlock()
	var harm []string
	vanished := 0
	for dst, via := range after {
		if before[dst] != via && Range().Cuts(dst) {
			if node, address := l.NodeAt(dst); node != nil && address != via && l.taken(via) {
				harm = append(harm, fmt.Sprintf("route %s via %s is wrong: node %s is at %s", dst, via, node.Name, address))
			}
		}
	}
	for dst, via := range before {
		if _, stands := after[dst]; stands {
			continue
		}
		vanished++
		if node, address := l.NodeAt(dst); node != nil && address == via {
			harm = append(harm, fmt.Sprintf("route %s via %s of the living node %s is gone", dst, via, node.Name))
		}
	}
	if quiet {
		return
	}
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	l.watch.harm = append(l.watch.harm, harm...)
	l.watch.vanished += vanished
}

// NodeAt is the Node that has a podCIDR, and where its server is.
func (l *Cluster) NodeAt(dst netip.Prefix) (*corev1.Node, netip.Addr) {
	for _, node := range l.API.stored() {
		prefixes, err := kube.PodCIDRs(node)
		if err != nil {
			continue
		}
		for _, p := range prefixes {
			if p == dst {
				server, _ := l.ServerOf(node)
				return node, l.AddressOf(server)
			}
		}
	}
	return nil, netip.Addr{}
}

// taken reports whether any server has an address in the network. Nobody's is
// where a Node's server may have been a moment ago.
func (l *Cluster) taken(a netip.Addr) bool {
	for _, server := range l.Sim.Servers() {
		if l.AddressOf(server) == a {
			return true
		}
	}
	return false
}

// deleting judges a Node that a controller is about to delete.
func (l *Cluster) deleting(node *corev1.Node) {
	if server, ok := l.ServerOf(node); ok {
		l.watch.mu.Lock()
		defer l.watch.mu.Unlock()
		l.watch.harm = append(l.watch.harm, fmt.Sprintf("node %s was deleted, and its server %d lives", node.Name, server.ID))
	}
}
