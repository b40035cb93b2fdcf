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
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/routes"
)

// dedicatedPatience bounds the wait for the first list of dedicated servers. Without the list,
// only Nodes without a provider ID have to wait.
const dedicatedPatience = time.Second

// Gateways returns the addresses in the network through which Nodes' pods are reached, none for
// dedicated servers. fresh requires a server list from after the call. It fails as a whole if
// the list does. The requests are as urgent as the changes of routes that wait for them.
func (x *Machines) Gateways(
	ctx context.Context, nodes []*corev1.Node, fresh bool,
) (routes.Gateways, error) {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	if fresh {
		if _, err := x.Cloud.List(ctx, time.Now()); err != nil {
			return routes.Gateways{}, err
		}
	}
	ix, err := x.look(ctx, time.Time{}, nodes...)
	if err != nil {
		return routes.Gateways{}, err
	}
	out := routes.Gateways{
		Of:       make(map[string]netip.Addr, len(nodes)),
		Aliases:  map[string][]netip.Addr{},
		IDs:      make(map[string]string, len(nodes)),
		Missing:  map[string]routes.Missing{},
		Servers:  ix.owners,
		Attached: ix.attached,
		Doubt:    ix.doubt(nodes),
	}
	found := x.matcher(ctx, ix, nodes)
	for _, node := range nodes {
		s, err := found(node)
		switch {
		case err != nil:
			out.Missing[node.Name] = routes.Missing{
				Elsewhere: errors.Is(err, kube.ErrOtherProvider), Reason: err.Error(),
			}
			continue
		case s.Dedicated:
			out.Missing[node.Name] = routes.Missing{Unroutable: true, Reason: unrouted(s.ID)}
			continue
		case !s.PrivateIP.IsValid():
			out.Missing[node.Name] = routes.Missing{
				Detached: true,
				Reason:   "server " + s.ProviderID() + " is not attached to the network; attach it",
			}
		default:
			out.Of[node.Name] = s.PrivateIP
			if len(s.AliasIPs) > 0 {
				out.Aliases[node.Name] = s.AliasIPs
			}
		}
		out.IDs[node.Name] = s.ProviderID()
	}
	return out, nil
}

// Look refreshes the cloud servers of these Nodes, by single requests if these are fewer than
// the list's.
func (x *Machines) Look(ctx context.Context, nodes []*corev1.Node) error {
	_, err := x.look(requests.WithPriority(ctx, requests.Urgent), time.Now(), nodes...)
	return err
}

// matcher returns a function that finds the machines of these Nodes in ix and the latest list of
// dedicated servers.
func (x *Machines) matcher(
	ctx context.Context, ix *index, nodes []*corev1.Node,
) func(*corev1.Node) (*Machine, error) {
	dx, unknown := &index{}, error(nil)
	if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Spec.ProviderID == "" }) {
		limited, cancel := context.WithTimeout(ctx, dedicatedPatience)
		defer cancel()
		dx, unknown = x.dedicatedSince(limited, time.Time{})
	}
	return func(node *corev1.Node) (*Machine, error) {
		number, err := kube.ParseDedicatedID(node.Spec.ProviderID)
		switch {
		case err == nil:
			return &Machine{Dedicated: true, ID: number}, nil
		case node.Spec.ProviderID != "":
			return ix.identified(node)
		case unknown != nil:
			return nil, unknown
		default:
			return matchAmong(ix, dx, node)
		}
	}
}

// unrouted returns why a dedicated server has no route, which no attachment would change.
func unrouted(number int64) string {
	return fmt.Sprintf("dedicated server %d: no route of the network can lead to it, because the cloud takes no gateway behind a vSwitch; give it a podCIDR of a pool with source: vswitch, or use an overlay", number)
}
