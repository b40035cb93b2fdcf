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
type Gateways struct{ Servers Servers }

// Gateways matches every Node against the server list; fresh asks for a list
// that is not from before the call. It fails as a whole where the list does, or
// where most of the Nodes' servers are missing from it at once.
func (g Gateways) Gateways(ctx context.Context, nodes []*corev1.Node, fresh bool) (routes.Gateways, error) {
	var since time.Time
	if fresh {
		since = time.Now()
	}
	servers, err := g.Servers.List(ctx, since)
	if err != nil {
		return routes.Gateways{}, err
	}
	out := routes.Gateways{
		Of:      make(map[string]netip.Addr, len(nodes)),
		IDs:     make(map[string]string, len(nodes)),
		Missing: map[string]routes.Missing{},
		Servers: make(map[netip.Addr]string, len(servers)),
	}
	for _, s := range servers {
		for _, a := range append([]netip.Addr{s.PrivateIP}, s.AliasIPs...) {
			if a.IsValid() {
				out.Servers[a] = s.ProviderID()
			}
		}
	}
	ix := newIndex(servers)
	if err := ix.plausible(nodes); err != nil {
		return routes.Gateways{}, err
	}
	for _, node := range nodes {
		s, err := ix.match(node)
		switch {
		case err != nil:
			out.Missing[node.Name] = routes.Missing{Reason: err.Error()}
			continue
		case !s.PrivateIP.IsValid():
			out.Missing[node.Name] = routes.Missing{Detached: true, Reason: "server " + s.ProviderID() + " is not attached to the network; attach it"}
		default:
			out.Of[node.Name] = s.PrivateIP
		}
		out.IDs[node.Name] = s.ProviderID()
	}
	return out, nil
}
