package webui

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
)

// Machine is a Node with its machine, or one that is gone and whose podCIDRs are in
// quarantine.
type Machine struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Tone Tone   `json:"tone"`
	// State is a word or two: serves, waits, not Ready, …
	State string `json:"state"`
	// Why is what keeps it from serving, the first cause first.
	Why  []string `json:"why,omitempty"`
	Gone bool     `json:"gone,omitempty"`
	// Address is the one in the network, or inside the cluster.
	Address string  `json:"address,omitempty"`
	Ranges  []Range `json:"ranges"`
	// Kind is such as "cx22 in fsn1"; ControlPlane: it carries that role.
	Kind         string `json:"kind,omitempty"`
	ControlPlane bool   `json:"controlPlane,omitempty"`

	providerID, location string
	addresses            []netip.Addr
}

// Range is a podCIDR and how peers reach it.
type Range struct {
	Prefix netip.Prefix `json:"prefix"`
	Tone   Tone         `json:"tone"`
	// How is such as "route stands" or "IPv6 native".
	How string `json:"how"`
}

// nodeID and serviceID are what the page calls an object.
func nodeID(name string) string    { return "node/" + name }
func serviceID(name string) string { return "service/" + name }

// machinesOf are all Nodes by name, then those that are gone.
func machinesOf(s *survey.Snapshot, troubled map[string]bool) ([]Machine, error) {
	rows, err := survey.NodesOf(s)
	if err != nil {
		return nil, err
	}
	servers := serversOf(s)
	var out []Machine
	for i := range rows.Nodes {
		out = append(out, machineOf(s, &rows.Nodes[i], servers, troubled["Node/"+rows.Nodes[i].Name]))
	}
	known := map[string]bool{} // the IDs so far
	for i := range out {
		known[out[i].ID] = true
	}
	holdings, _ := s.Holdings() // damage is doctor's to tell
	for _, h := range holdings {
		if h.Released.IsZero() {
			continue
		}
		m := Machine{
			ID: nodeID(h.Node.Name), Name: h.Node.Name, Tone: Unknown, State: "gone", Gone: true,
			Ranges: []Range{}, providerID: h.Node.ProviderID,
		}
		if known[m.ID] {
			m.ID += "/" + h.Node.UID // another Node has the name now, or is gone too
		}
		known[m.ID] = true
		for _, p := range slices.Concat(h.Prefixes, h.Abandoned) {
			m.Ranges = append(m.Ranges, Range{p, Unknown, "in quarantine"})
		}
		m.Why = []string{quarantineText(s, h.Released)}
		out = append(out, m)
	}
	return out, nil
}

func quarantineText(s *survey.Snapshot, released time.Time) string {
	text := "seen to be gone at " + clock(released)
	if s.Saw(survey.PartConfig) {
		text += ", its podCIDRs are free again at " + clock(released.Add(s.Config.IPAM.Quarantine)) + " at the earliest"
	}
	return text
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// server is what a card says of a Node's server.
type server struct{ kind, location string }

func serversOf(s *survey.Snapshot) map[string]server {
	out := make(map[string]server, len(s.Servers))
	for i := range s.Servers {
		v := &s.Servers[i]
		kind := v.Type
		if v.Location != "" {
			kind = strings.TrimSpace(kind + " in " + v.Location)
		}
		out[v.ProviderID()] = server{kind, v.Location}
	}
	return out
}

func machineOf(s *survey.Snapshot, row *survey.NodeRow, servers map[string]server, troubled bool) Machine {
	n := s.Node(row.Name)
	m := Machine{
		ID: nodeID(row.Name), Name: row.Name, Why: row.Why, Ranges: []Range{}, ControlPlane: kube.ControlPlane(n),
		Kind: servers[row.ProviderID].kind, location: servers[row.ProviderID].location, providerID: row.ProviderID,
		addresses: kube.Addresses(n),
	}
	if row.Route.Via.IsValid() {
		m.addresses = append(m.addresses, row.Route.Via)
	}
	m.Address = addressOf(n, row)
	for _, p := range row.PodCIDRs {
		m.Ranges = append(m.Ranges, rangeOf(p, row))
	}
	m.Tone, m.State = stateOf(s, n, row)
	if troubled {
		if m.Tone == OK {
			m.State = "has trouble"
		}
		m.Tone = Bad
	}
	return m
}

func addressOf(n *corev1.Node, row *survey.NodeRow) string {
	if row.Route.Via.IsValid() {
		return row.Route.Via.String()
	}
	if inner := kube.InternalIPs(n); len(inner) > 0 {
		return inner[0].String()
	}
	return ""
}

// rangeOf says how peers reach a podCIDR. The route of a row is the IPv4 one's.
func rangeOf(p netip.Prefix, row *survey.NodeRow) Range {
	family := "IPv4"
	if p.Addr().Is6() {
		family = "IPv6"
	}
	routed := map[string]string{
		"cloud": "route " + row.Route.State, "node": "routed by every node", "native": "routed by the provider",
		"vswitch": "reached through the vSwitch", "none": "routed by others",
	}
	r := Range{Prefix: p, Tone: OK, How: routed[row.Families[family]]}
	if row.Families[family] == "cloud" {
		r.Tone = routeTone(row.Route.State)
	}
	if r.How == "" {
		r.Tone, r.How = Unknown, "not seen how it is routed"
	}
	return r
}

func routeTone(state string) Tone {
	switch state {
	case survey.RouteStands, survey.RouteNotNeeded:
		return OK
	case survey.RouteNotSeen:
		return Unknown
	default:
		return Bad
	}
}

// stateOf is how a Node fares. What is young may wait.
func stateOf(s *survey.Snapshot, n *corev1.Node, row *survey.NodeRow) (Tone, string) {
	trouble := Bad
	if row.Age < survey.GracePeriod {
		trouble = Waits
	}
	switch {
	case n.DeletionTimestamp != nil:
		return Waits, "being deleted"
	case survey.Uninitialized(n):
		return trouble, "not initialized yet"
	case !kube.Ready(n):
		return trouble, "not Ready"
	case len(row.PodCIDRs) == 0 && s.Saw(survey.PartConfig) && s.Config.IPAM.Enabled:
		return trouble, "without podCIDRs"
	case row.NetworkUnavailable != nil && row.NetworkUnavailable.Status != string(corev1.ConditionFalse):
		return trouble, "network unavailable"
	case row.Route.State == survey.RouteMissing || row.Route.State == survey.RouteStale:
		return trouble, "route " + row.Route.State
	case len(row.Why) > 0:
		return Waits, "has trouble"
	case n.Spec.Unschedulable:
		return OK, "cordoned"
	}
	return OK, "serves"
}
