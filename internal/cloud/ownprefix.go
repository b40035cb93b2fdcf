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

// ErrOwnUnknown: which prefix is a Node's own is not known yet; ask again.
var ErrOwnUnknown = errors.New("the server's own IPv6 prefix is not known yet")

// freshEnough is how old may be what is known of a server and has to be fresh:
// many Nodes join at once, and share one list.
const freshEnough = 5 * time.Second

// OwnPrefix returns the /64 of the Node's server and, sorted, the addresses in
// it that are taken: the server's own and those that the Node reports. The zero
// Prefix means that the server has none, or that the machine is another
// provider's, of which nothing is known. The error wraps ErrOwnUnknown while no
// server, or more than one, matches.
func (x *Machines) OwnPrefix(ctx context.Context, node *corev1.Node) (own netip.Prefix, avoid []netip.Addr, err error) {
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

// findFresh matches the Node. What comes of it can't be taken back, since podCIDRs
// never change. So a match that rests on anything but the provider ID, which is
// never used again, looks the server up: in an older list a server that is gone
// may stand under the name of the one that replaced it. That a name has no server
// rests on a list as old as the Node, as for everybody: nobody removes such a Node,
// and asking anew would cost a whole list twice a minute for as long as it is there.
//
// A dedicated server's number is never used again either. That the account has none
// of the number rests on a list as old as the Node, too.
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
