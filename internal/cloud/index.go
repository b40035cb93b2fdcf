package cloud

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Index remembers the index of a server list, which every look at the list needs
// and only another list changes, and when Nodes' reports were first seen. The zero
// Index is ready for use, a nil one remembers nothing. It is safe for concurrent
// use, and best shared by all that look at one list.
type Index struct {
	last atomic.Pointer[index]

	mu      sync.Mutex
	reports map[reporter]reports
	swept   time.Time // when reports that are too old were forgotten
}

// Doubt returns an error unless the servers that are listed now are those of the
// cluster's own project. Nodes that have no provider ID yet, or another provider's,
// say nothing about that; where all are such, there is no doubt, and no request.
func (x *Index) Doubt(ctx context.Context, servers Servers, nodes []*corev1.Node) error {
	identified := func(n *corev1.Node) bool { _, err := kube.ParseProviderID(n.Spec.ProviderID); return err == nil }
	if !slices.ContainsFunc(nodes, identified) {
		return nil
	}
	list, err := servers.List(ctx, time.Now())
	if err != nil {
		return err
	}
	return x.of(list).doubt(nodes)
}

func (x *Index) of(servers []Server) *index {
	if x == nil {
		return newIndex(servers)
	}
	if last := x.last.Load(); last != nil && last.isOf(servers) {
		return last
	}
	made := newIndex(servers)
	x.last.Store(made)
	return made
}

// index finds servers in a list by all that a Node may know of its own.
type index struct {
	list   []Server
	byID   map[int64]*Server
	byName map[string][]*Server
	byAddr map[netip.Addr]*Server
	// owners are the provider IDs of the servers that have the addresses.
	owners map[netip.Addr]string
	// attached is how many servers have an address in the network.
	attached int
}

func newIndex(servers []Server) *index {
	ix := &index{
		list:   servers,
		byID:   make(map[int64]*Server, len(servers)),
		byName: make(map[string][]*Server, len(servers)),
		byAddr: make(map[netip.Addr]*Server, len(servers)),
		owners: make(map[netip.Addr]string, len(servers)),
	}
	for i := range servers {
		s := &servers[i]
		ix.byID[s.ID] = s
		ix.byName[s.Name] = append(ix.byName[s.Name], s)
		if s.PrivateIP.IsValid() {
			ix.attached++
		}
		for _, a := range slices.Concat([]netip.Addr{s.PrivateIP}, s.AliasIPs) {
			if a.IsValid() {
				ix.byAddr[a], ix.owners[a] = s, s.ProviderID()
			}
		}
	}
	return ix
}

// isOf reports whether the index is of this very list: lists don't change, so the
// same memory is the same list.
func (ix *index) isOf(servers []Server) bool {
	return len(ix.list) == len(servers) && (len(servers) == 0 || &ix.list[0] == &servers[0])
}
