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
	// ErrNoMatch means that no listed machine matches the Node.
	ErrNoMatch = errors.New("no matching server")
	// ErrAmbiguous means that two machines match the Node, so neither is used.
	ErrAmbiguous = errors.New("more than one server matches")
)

// find matches a Node with its machine. The list of cloud servers is as new as since, and that
// of dedicated servers as dedicatedSince; for the zero time, the cache decides.
//
// A provider ID alone decides: names and addresses may change or be reassigned, and no request
// is sent to the other provider. Without a provider ID, both lists are searched, because a name
// or an address may match a server of each. If a cloud server matches, the list of dedicated
// servers may be of any age: a dedicated server rarely gets the Node's name, and an outage of
// Robot must not block cloud servers. Before Robot's first list, a cloud server must match by
// name and address. If a dedicated server or no server matches, the list must be as new as the
// Node, which may be a replacement.
func (x *Machines) find(
	ctx context.Context, node *corev1.Node, since, dedicatedSince time.Time,
) (*Machine, error) {
	switch number, err := kube.ParseDedicatedID(node.Spec.ProviderID); {
	case err == nil:
		return x.numbered(ctx, number, x.born(node))
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
	if born := x.born(node); born.After(dedicatedSince) {
		dedicatedSince = born
	}
	if dx, err = x.dedicatedSince(ctx, dedicatedSince); err != nil {
		return nil, err
	}
	return matchAmong(ix, dx, node)
}

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

// matchAmong finds the machine of a Node without a provider ID in both lists, by its name and by
// the addresses that its kubelet reported. If two machines match, it returns neither.
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

// candidates returns the machines with the Node's name or a reported address, sorted by ID.
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

func reported(node *corev1.Node) []netip.Addr {
	return append(kube.InternalIPs(node), kube.ProvidedIPs(node)...)
}

// proven returns the cloud server that has the Node's name and a reported address, or nil.
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

// publicly returns the cloud server with a public address of the Node, if there is one. It must
// not be used to match a Node, only to confirm or reject another match.
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
