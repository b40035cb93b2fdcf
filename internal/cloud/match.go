package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

var (
	// ErrNoMatch: no machine in the lists is the Node's.
	ErrNoMatch = errors.New("no matching server")
	// ErrAmbiguous: two machines could be the Node's, so none is taken.
	ErrAmbiguous = errors.New("more than one server matches")
)

// find matches a Node with its machine. The list of cloud servers is as new as since,
// and so is that of dedicated ones as dedicatedSince; the zero times leave that to
// the caches.
//
// A provider ID decides alone: names and addresses may change or be taken over by
// others, and nothing is requested of the other provider. Without one both lists are
// looked at, because a name or an address could lead to a server of each. Where that
// ends with a cloud server, the other list may be of any age: that no dedicated server
// has the Node's name hardly changes, and a Robot that doesn't answer must not keep
// cloud servers out. Before there ever was one, name and address together prove a cloud
// server. Where it ends with a dedicated server or with none, the list has to be as new
// as the Node, which may be the successor of another.
func (x *Machines) find(
	ctx context.Context, node *corev1.Node, since, dedicatedSince time.Time,
) (*Machine, error) {
	switch number, err := kube.ParseDedicatedID(node.Spec.ProviderID); {
	case err == nil:
		return x.numbered(ctx, number, x.born(node, time.Now()))
	case !errors.Is(err, kube.ErrOtherProvider):
		return nil, err
	}
	ix, err := x.look(ctx, since, node)
	if err != nil {
		return nil, err
	}
	if node.Spec.ProviderID != "" {
		return ix.identified(node)
	}
	dx, err := x.dedicatedSince(ctx, time.Time{})
	if err != nil {
		if m := ix.proven(node); m != nil {
			return m, nil
		}
		return nil, err
	}
	found, err := matchAmong(ix, dx, node)
	if err == nil && !found.Dedicated || x.Robot == nil {
		return found, err
	}
	if born := x.born(node, time.Now()); born.After(dedicatedSince) {
		dedicatedSince = born
	}
	if dx, err = x.dedicatedSince(ctx, dedicatedSince); err != nil {
		return nil, err
	}
	return matchAmong(ix, dx, node)
}

// identified is the cloud server with the Node's provider ID.
func (ix *index) identified(node *corev1.Node) (*Machine, error) {
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return nil, err
	}
	if m := ix.byID[id]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w: no server has the ID %d of the provider ID", ErrNoMatch, id)
}

// matchAmong finds the machine of a Node without a provider ID among cloud servers and
// dedicated ones, by its name and by the addresses that its kubelet reported. Where those
// lead to two machines, of whichever kind, none is taken.
func matchAmong(servers, dedicated *index, node *corev1.Node) (*Machine, error) {
	found, others := servers.candidates(node), dedicated.candidates(node)
	if len(found) == 0 && len(others) > 0 {
		found = servers.publicly(node)
	}
	switch found = append(found, others...); len(found) {
	case 0:
		return nil, fmt.Errorf("%w: none is named %q or has an address that the kubelet reported",
			ErrNoMatch, node.Name)
	case 1:
		return found[0], nil
	default:
		return nil, fmt.Errorf("%w: %s and %s have the Node's name %q or an address that the "+
			"kubelet reported; rename one, or start the kubelet with --provider-id",
			ErrAmbiguous, found[0].title(), found[1].title(), node.Name)
	}
}

// candidates are the machines that have the Node's name or an address that its kubelet
// reported, by ID.
func (ix *index) candidates(node *corev1.Node) []*Machine {
	found := slices.Clone(ix.byName[node.Name])
	for _, a := range reported(node) {
		if m := ix.owner(a); m != nil {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b *Machine) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Compact(found)
}

// reported are the addresses that the Node's kubelet reported or was given.
func reported(node *corev1.Node) []netip.Addr {
	return append(kube.InternalIPs(node), kube.ProvidedIPs(node)...)
}

// proven is the cloud server that has the Node's name and an address that its
// kubelet reported as well; nil: none.
func (ix *index) proven(node *corev1.Node) *Machine {
	found := ix.candidates(node)
	if len(found) != 1 || found[0].Name != node.Name {
		return nil
	}
	has := func(a netip.Addr) bool { return ix.byAddr[a] == found[0] }
	if slices.ContainsFunc(reported(node), has) || slices.Equal(ix.publicly(node), found) {
		return found[0]
	}
	return nil
}

// publicly is the cloud server that has an address of the Node's on the internet, if
// there is one. It is no way to find a Node's server, only to doubt that it is another.
func (ix *index) publicly(node *corev1.Node) []*Machine {
	addresses := reported(node)
	for i := range ix.list {
		m := &ix.list[i]
		has := func(a netip.Addr) bool {
			return a == m.PublicIPv4 || m.PublicIPv6.IsValid() && m.PublicIPv6.Contains(a)
		}
		if slices.ContainsFunc(addresses, has) {
			return []*Machine{m}
		}
	}
	return nil
}
