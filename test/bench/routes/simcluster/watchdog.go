package simcluster

import (
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// watchdog observes every change of the route table and every Node that a controller deletes, and
// detects harm: a route with another gateway than the server of the Node with the podCIDR, a
// deleted route to a living Node, a deleted Node with a living server.
type watchdog struct {
	mu       sync.Mutex
	routes   map[netip.Prefix]netip.Addr
	harm     []string
	vanished int // deleted routes, rightly or not
	quiet    bool
}

// Harm lists the violations.
func (l *Cluster) Harm() []string {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	return append([]string(nil), l.watch.harm...)
}

// Vanished counts the deleted routes, rightly or not.
func (l *Cluster) Vanished() int {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	return l.watch.vanished
}

// ByHand changes the cloud without counting it as harm.
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

// changed compares the route table with the previous one.
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

// NodeAt returns the Node that has a podCIDR, and the address of its server.
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

// taken reports whether any server has an address in the network. A free address may have belonged
// to a Node's server a moment ago.
func (l *Cluster) taken(a netip.Addr) bool {
	for _, server := range l.Sim.Servers() {
		if l.AddressOf(server) == a {
			return true
		}
	}
	return false
}

// deleting checks a Node that a controller is about to delete.
func (l *Cluster) deleting(node *corev1.Node) {
	if server, ok := l.ServerOf(node); ok {
		l.watch.mu.Lock()
		defer l.watch.mu.Unlock()
		l.watch.harm = append(l.watch.harm, fmt.Sprintf("node %s was deleted, and its server %d lives", node.Name, server.ID))
	}
}
