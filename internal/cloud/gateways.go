package cloud

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/routes"
)

// Gateways finds the addresses through which Nodes' pods are reached: those of
// their servers in the network.
type Gateways struct {
	Servers Servers
	// Index, if not nil, saves indexing the same server list again.
	Index *Index
}

// Gateways matches every Node against the server list; fresh asks for a list
// that is not from before the call. It fails as a whole where the list does.
func (g Gateways) Gateways(ctx context.Context, nodes []*corev1.Node, fresh bool) (routes.Gateways, error) {
	if fresh {
		if _, err := g.Servers.List(ctx, time.Now()); err != nil {
			return routes.Gateways{}, err
		}
	}
	ix, err := g.Index.look(ctx, g.Servers, time.Time{}, nodes...)
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
	for _, node := range nodes {
		s, err := ix.match(node)
		switch {
		case err != nil:
			out.Missing[node.Name] = routes.Missing{Reason: err.Error()}
			continue
		case !s.PrivateIP.IsValid():
			out.Missing[node.Name] = routes.Missing{
				Detached: true, Reason: "server " + s.ProviderID() + " is not attached to the network; attach it",
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
