package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// ErrOwnUnknown means that the Node's own prefix can't be determined yet; callers retry.
var ErrOwnUnknown = errors.New("the server's own IPv6 prefix is not known yet")

// freshEnough is the maximum age of fresh data: Nodes that join at once share a list.
const freshEnough = 5 * time.Second

// OwnPrefix returns the /64 of the Node's server and, sorted, the addresses in it that are in use:
// the server's own and those that the Node reports. The zero Prefix means that the server has none
// or is another provider's. The error wraps ErrOwnUnknown while no server or more than one matches.
func (x *Machines) OwnPrefix(
	ctx context.Context, node *corev1.Node,
) (own netip.Prefix, avoid []netip.Addr, err error) {
	found, err := x.findFresh(ctx, node)
	switch {
	case errors.Is(err, kube.ErrOtherProvider):
		return netip.Prefix{}, nil, nil
	case errors.Is(err, ErrNoMatch), errors.Is(err, ErrAmbiguous), errors.Is(err, errNotYet):
		return netip.Prefix{}, nil, fmt.Errorf("node %s: %w: %w", node.Name, ErrOwnUnknown, err)
	case err != nil:
		return netip.Prefix{}, nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	if own = found.PublicIPv6; !own.IsValid() {
		return netip.Prefix{}, nil, nil
	}
	own = own.Masked()
	first, _ := ownIPv6(own, nil)
	avoid = []netip.Addr{first}
	for _, a := range kube.Addresses(node) {
		if own.Contains(a) {
			avoid = append(avoid, a)
		}
	}
	slices.SortFunc(avoid, netip.Addr.Compare)
	return own, slices.Compact(avoid), nil
}

// findFresh matches the Node. A wrong match can't be corrected, since podCIDRs never change. A
// match by anything but the provider ID, which is never reused, is therefore verified by a fresh
// lookup: an older list may have a deleted server under the name of its replacement. So is the
// absence of a cloud server with the provider ID. The absence of a server with the Node's name
// is taken from a list that is as old as the Node, as everywhere: such a Node is never deleted,
// and fresh lookups would cost two whole lists a minute as long as it exists.
//
// The numbers of dedicated servers are never reused either. Their absence is also taken from a
// list that is as old as the Node.
func (x *Machines) findFresh(ctx context.Context, node *corev1.Node) (*Machine, error) {
	found, err := x.find(ctx, node, time.Time{}, time.Time{})
	byID := node.Spec.ProviderID != ""
	_, notOurs := kube.ParseProviderID(node.Spec.ProviderID)
	if again := byID && notOurs == nil && errors.Is(err, ErrNoMatch) || !byID && err == nil; !again {
		return found, err
	}
	now := time.Now().Add(-freshEnough)
	return x.find(ctx, node, now, now)
}
