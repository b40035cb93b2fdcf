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
// that is not from before the call. It fails as a whole where the list does, or
// where most of the Nodes' servers are missing from it at once.
func (g Gateways) Gateways(ctx context.Context, nodes []*corev1.Node, fresh bool) (routes.Gateways, error) {
	var since time.Time
	for _, node := range nodes {
		// Only its name and address tell which server it is, and an older list
		// may have one of that name that is gone.
		if born := node.CreationTimestamp.Time; node.Spec.ProviderID == "" && born.After(since) {
			since = born
		}
	}
	if fresh {
		since = time.Now()
	}
	servers, err := g.Servers.List(ctx, since)
	if err != nil {
		return routes.Gateways{}, err
	}
	ix := g.Index.of(servers)
	out := routes.Gateways{
		Of:       make(map[string]netip.Addr, len(nodes)),
		Aliases:  map[string][]netip.Addr{},
		IDs:      make(map[string]string, len(nodes)),
		Missing:  map[string]routes.Missing{},
		Servers:  ix.owners,
		Attached: ix.attached,
	}
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
			if len(s.AliasIPs) > 0 {
				out.Aliases[node.Name] = s.AliasIPs
			}
		}
		out.IDs[node.Name] = s.ProviderID()
	}
	return out, nil
}
