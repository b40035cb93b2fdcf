package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// host is what a Node runs on: a cloud server or a dedicated one.
type host struct {
	server    *Server
	dedicated *Dedicated
}

// hosts finds Nodes' hosts among all that there are.
type hosts struct {
	servers   Servers
	index     *Index
	dedicated *DedicatedIndex
}

// find matches a Node with its host. The list of cloud servers is as new as since,
// and so is that of dedicated ones as dedicatedSince; the zero times leave that to
// the caches.
//
// A provider ID decides alone, and nobody is asked about the other kind. Without
// one both lists are looked at, because a name or an address could lead to a
// server of each. Where that ends with a cloud server, the other list may be of
// any age: that no dedicated server has the Node's name hardly changes, and a
// Robot that doesn't answer must not keep cloud servers out. Before there ever was
// one, name and address together prove a cloud server. Where it ends with a
// dedicated server or with none, the list has to be as new as the Node, which may
// be the successor of another.
func (h hosts) find(ctx context.Context, node *corev1.Node, since, dedicatedSince time.Time) (host, error) {
	switch number, err := kube.ParseDedicatedID(node.Spec.ProviderID); {
	case err == nil:
		d, err := h.dedicated.numbered(ctx, number, h.index.born(node, time.Now()))
		return host{dedicated: d}, err
	case !errors.Is(err, kube.ErrOtherProvider):
		return host{}, err
	}
	ix, err := h.index.look(ctx, h.servers, since, node)
	if err != nil {
		return host{}, err
	}
	if node.Spec.ProviderID != "" {
		return ix.host(node)
	}
	dx, err := h.dedicated.look(ctx, time.Time{})
	if err != nil {
		if s := ix.proven(node); s != nil {
			return host{server: s}, nil
		}
		return host{}, err
	}
	found, err := matchAmong(ix, dx, node)
	if err == nil && found.server != nil || h.dedicated == nil || h.dedicated.Account == nil {
		return found, err
	}
	if dx, err = h.dedicated.look(ctx, later(dedicatedSince, h.index.born(node, time.Now()))); err != nil {
		return host{}, err
	}
	return matchAmong(ix, dx, node)
}

// host is match for who looks at both kinds.
func (ix *index) host(node *corev1.Node) (host, error) {
	s, err := ix.match(node)
	if err != nil {
		return host{}, err
	}
	return host{server: s}, nil
}

// matchAmong finds the host of a Node without a provider ID, by its name and by the
// addresses that its kubelet reported. Where those lead to two hosts, whichever
// kind they are, nobody guesses.
func matchAmong(ix *index, dx *dedicatedIndex, node *corev1.Node) (host, error) {
	found, err := ix.host(node)
	candidates := dx.candidates(node)
	switch {
	case len(candidates) == 0 || err != nil && !errors.Is(err, ErrNoMatch):
		return found, err
	case len(candidates) > 1:
		return host{}, fmt.Errorf("%w: dedicated servers %d and %d have the Node's name %q or an address that the kubelet reported; rename one, or start the kubelet with --provider-id",
			ErrAmbiguous, candidates[0].Number, candidates[1].Number, node.Name)
	}
	server := found.server
	if server == nil {
		server = ix.publicly(node)
	}
	if server != nil {
		return host{}, fmt.Errorf("%w: server %d and dedicated server %d have the Node's name %q or an address that the kubelet reported; rename one, or start the kubelet with --provider-id",
			ErrAmbiguous, server.ID, candidates[0].Number, node.Name)
	}
	return host{dedicated: candidates[0]}, nil
}

// proven is the cloud server that has the Node's name and an address that its
// kubelet reported as well; nil: none.
func (ix *index) proven(node *corev1.Node) *Server {
	s, err := ix.match(node)
	if err != nil || s.Name != node.Name {
		return nil
	}
	if reported, err := ix.reported(node); err != nil || reported != s && ix.publicly(node) != s {
		return nil
	}
	return s
}

// publicly is the server that has an address of the Node's on the internet; nil:
// none. It is no way to find a Node's server, only to doubt that it is another one.
func (ix *index) publicly(node *corev1.Node) *Server {
	reported := slices.Concat(kube.InternalIPs(node), kube.ProvidedIPs(node))
	for i := range ix.list {
		s := &ix.list[i]
		for _, a := range reported {
			if a == s.PublicIPv4 || s.PublicIPv6.IsValid() && s.PublicIPv6.Contains(a) {
				return s
			}
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
