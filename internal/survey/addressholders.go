package survey

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

func (s *Snapshot) addressRow(a Addressing, e addresses.Entry) AddressRow {
	row := AddressRow{Address: e.Address, Holder: e.Holder, Nodes: e.Nodes, Epoch: e.Epoch, Local: e.Local(), Check: e.Check(), HeldBy: append([]string{}, a.Holders(e.Address)...)}
	for _, share := range e.Shares {
		row.Services = append(row.Services, share.Namespace+"/"+share.Name)
	}
	slices.Sort(row.Services)
	if pool, ok := s.AddressPool(e.Address); ok {
		row.Pool, row.Mover = pool.Name, string(pool.Mover)
	} else {
		row.Notes = append(row.Notes, "it is of no configured pool: configure the pool again, or delete the Service")
	}
	if !s.Saw(PartNodes) {
		row.State = AddressNotSeen
		return row
	}
	if len(e.Nodes) > 0 {
		row.together(a, e)
	} else {
		row.alone(a, e)
	}
	for _, node := range slices.Concat([]string{e.Holder}, e.Nodes) {
		if node != "" && s.Node(node) == nil {
			row.Notes = append(row.Notes, "Node "+node+" doesn't exist")
		}
		if ports := a.SilentOf(node, row.Ports()); len(ports) > 0 {
			row.Notes = append(row.Notes, fmt.Sprintf("%s is silent at %s, as its watchers report", node, portsText(ports)))
		}
	}
	return row
}

// alone sets the state of an address that one node should hold.
func (r *AddressRow) alone(a Addressing, e addresses.Entry) {
	others := slices.DeleteFunc(slices.Clone(r.HeldBy), func(n string) bool { return n == e.Holder })
	holds := slices.Contains(r.HeldBy, e.Holder)
	problem, refused := a.Refusal(e.Holder, e.Address)
	switch {
	case !a.Settled && (!holds || len(others) > 0) && !refused:
		r.State = AddressMoving
	case e.Holder == "":
		r.State = AddressNoHolder
	case refused && !holds:
		r.State = AddressRefused
	case !holds:
		r.State = AddressNotHeld
	case len(others) > 0:
		r.State = AddressHeldTwice
	default:
		r.State = AddressHeld
	}
	if refused {
		r.Notes = append(r.Notes, problemText(e.Holder, problem))
	}
	if len(others) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("held by %s too", strings.Join(others, ", ")))
	}
	if e.Holder == "" {
		r.Notes = append(r.Notes, a.againstAll(e.Address)...)
	}
}

// together sets the state of an address that several nodes announce. One of them suffices.
func (r *AddressRow) together(a Addressing, e addresses.Entry) {
	var missing []string
	for _, node := range e.Nodes {
		if _, holds := slices.BinarySearch(r.HeldBy, node); holds {
			continue
		}
		missing = append(missing, node)
		if problem, refused := a.Refusal(node, e.Address); refused {
			r.Notes = append(r.Notes, problemText(node, problem))
		}
	}
	switch {
	case len(missing) < len(e.Nodes):
		r.State = AddressHeld
	case !a.Settled:
		r.State = AddressMoving
	case len(r.Notes) > 0:
		r.State = AddressRefused
	default:
		r.State = AddressNotHeld
	}
	if len(missing) > 0 && a.Settled {
		r.Notes = append(r.Notes, fmt.Sprintf("%d of %d nodes do not announce it: %s", len(missing), len(e.Nodes), strings.Join(missing, ", ")))
	}
}

// againstAll returns the problems that any node reports for an address.
func (a Addressing) againstAll(address netip.Addr) (notes []string) {
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

func portsText(ports []int) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf(":%d", p)
	}
	return strings.Join(texts, " and ")
}

func (s *Snapshot) addressNodes(a Addressing) (rows []AddressNodeRow) {
	assigned := map[string]int{}
	for _, e := range a.Ledger.Entries() {
		if len(e.Shares) == 0 {
			continue
		}
		for _, node := range append(slices.Clone(e.Nodes), e.Holder) {
			assigned[node]++
		}
	}
	for _, n := range s.Nodes {
		report, reports := a.Reports[n.Name]
		row := AddressNodeRow{Node: n.Name, Assigned: assigned[n.Name], Held: len(report.Held), Refused: len(report.Refused), Reports: reports}
		row.Why = s.whyNoAddress(a, n)
		rows = append(rows, row)
	}
	return rows
}

func (s *Snapshot) whyNoAddress(a Addressing, n *corev1.Node) (why []string) {
	report, reports := a.Reports[n.Name]
	if err := a.Unreadable[n.Name]; err != nil {
		why = append(why, err.Error())
	} else if !reports {
		why = append(why, "its agent has said nothing about addresses")
	}
	if !n.DeletionTimestamp.IsZero() {
		why = append(why, "it is being deleted")
	} else if !kube.Ready(n) {
		why = append(why, "it is not Ready")
	}
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
		why = append(why, "it has the label "+corev1.LabelNodeExcludeBalancers)
	}
	if n.Spec.Unschedulable {
		why = append(why, "it is cordoned")
	}
	if report.Unfit != "" {
		why = append(why, "unfit: "+report.Unfit)
	}
	for _, silent := range a.Silent {
		if silent.Node == n.Name {
			why = append(why, fmt.Sprintf("silent at :%d, as its watchers report", silent.Port))
		}
	}
	return why
}
