package survey

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/addresses"
)

// AddressHolding is an address of one or more Services, and its state by the nodes' reports.
type AddressHolding struct {
	addresses.Entry
	// Services are namespace/name.
	Services []string
	// Pool and Mover are empty if no configured pool contains the address.
	Pool   string
	Mover  addresses.Mover
	HeldBy []string
	State  string
	Notes  []string
}

// The states of an address.
const (
	// AddressHeld: only the assigned node reports it, or at least one of several assigned nodes.
	AddressHeld = "held"
	// AddressMoving: the ledger changed within the last minute; nodes are still converging.
	AddressMoving = "moving"
	// AddressHeldTwice: another node reports the address too.
	AddressHeldTwice = "held twice"
	// AddressNotHeld: the node that should hold the address does not report it.
	AddressNotHeld = "not held"
	// AddressRefused: the node that should hold the address reports a reason why it does not.
	AddressRefused = "refused"
	// AddressNoHolder: no node is eligible so far.
	AddressNoHolder = "no holder"
	// AddressNotSeen: the Nodes could not be read.
	AddressNotSeen = "not seen"
)

// AddressHoldings returns the addresses that Services have, in the ledger's order.
func (s *Snapshot) AddressHoldings(a Addressing) (all []AddressHolding) {
	for _, e := range a.Ledger.Entries() {
		if len(e.Shares) > 0 {
			all = append(all, s.holding(a, e))
		}
	}
	return all
}

func (s *Snapshot) holding(a Addressing, e addresses.Entry) AddressHolding {
	h := AddressHolding{Entry: e, HeldBy: a.holders[e.Address]}
	for _, share := range e.Shares {
		h.Services = append(h.Services, share.Namespace+"/"+share.Name)
	}
	slices.Sort(h.Services)
	if pool, ok := s.AddressPool(e.Address); ok {
		h.Pool, h.Mover = pool.Name, pool.Mover
	} else {
		h.note("it is of no configured pool: configure the pool again, or delete the Service")
	}
	if !s.Saw(PartNodes) {
		h.State = AddressNotSeen
		return h
	}
	if len(e.Nodes) > 0 {
		h.together(a)
	} else {
		h.alone(a)
	}
	for _, node := range h.Assigned() {
		if s.Node(node) == nil {
			h.note("Node %s doesn't exist", node)
		}
		var ports []string
		for _, port := range a.SilentOf(node, h.Ports()) {
			ports = append(ports, fmt.Sprint(":", port))
		}
		if len(ports) > 0 {
			h.note("%s is silent at %s, as its watchers report", node, strings.Join(ports, " and "))
		}
	}
	return h
}

// Assigned returns the nodes that should hold the address.
func (h *AddressHolding) Assigned() []string {
	if h.Holder == "" {
		return h.Nodes
	}
	return []string{h.Holder}
}

func (h *AddressHolding) note(format string, values ...any) {
	h.Notes = append(h.Notes, fmt.Sprintf(format, values...))
}

// alone sets the state of an address that one node should hold.
func (h *AddressHolding) alone(a Addressing) {
	others := slices.DeleteFunc(slices.Clone(h.HeldBy), func(n string) bool { return n == h.Holder })
	holds := len(others) < len(h.HeldBy)
	problem, refused := a.Refusal(h.Holder, h.Address)
	switch {
	case !a.Settled && (!holds || len(others) > 0) && !refused:
		h.State = AddressMoving
	case h.Holder == "":
		h.State = AddressNoHolder
	case refused && !holds:
		h.State = AddressRefused
	case !holds:
		h.State = AddressNotHeld
	case len(others) > 0:
		h.State = AddressHeldTwice
	default:
		h.State = AddressHeld
	}
	if refused {
		h.note("%s", problemText(h.Holder, problem))
	}
	if len(others) > 0 {
		h.note("held by %s too", strings.Join(others, ", "))
	}
	if h.Holder == "" {
		h.Notes = append(h.Notes, a.refusals(h.Address)...)
	}
}

// together sets the state of an address that several nodes announce. One of them suffices.
func (h *AddressHolding) together(a Addressing) {
	var missing []string
	for _, node := range h.Nodes {
		if slices.Contains(h.HeldBy, node) {
			continue
		}
		missing = append(missing, node)
		if problem, refused := a.Refusal(node, h.Address); refused {
			h.note("%s", problemText(node, problem))
		}
	}
	switch {
	case len(missing) < len(h.Nodes):
		h.State = AddressHeld
	case !a.Settled:
		h.State = AddressMoving
	case len(h.Notes) > 0:
		h.State = AddressRefused
	default:
		h.State = AddressNotHeld
	}
	if len(missing) > 0 && a.Settled {
		h.note("%d of %d nodes do not announce it: %s", len(missing), len(h.Nodes), strings.Join(missing,
			", "))
	}
}

// refusals returns the problems that any node reports for an address.
func (a Addressing) refusals(address netip.Addr) (notes []string) {
	for node := range a.Reports {
		if problem, refused := a.Refusal(node, address); refused {
			notes = append(notes, problemText(node, problem))
		}
	}
	slices.Sort(notes)
	return notes
}

func problemText(node string, p addresses.Problem) string {
	text := fmt.Sprintf("%s: %s", node, p.Reason)
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Text != "" {
		text += ": " + p.Text
	}
	return text
}

// Ports returns the ports by which nodes monitor the holder: kube-proxy's health checks for the
// address and the node, and the agent's port for Layer 2 and floating IPs.
func (h *AddressHolding) Ports() []int {
	ports := []int{h.Check(), addresses.ProxyPort}
	if h.Mover == addresses.Layer2 || h.Mover == addresses.FloatingIP {
		ports = append(ports, addresses.AgentPort)
	}
	return ports
}
