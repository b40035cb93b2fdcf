package survey

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/addresses"
	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/table"
)

// AddressesParts are the parts of AddressesOf; PartConfig and PartAddresses are required.
const AddressesParts = PartConfig | PartNodes | PartAddresses | PartServices

// AddressesOf shows the addresses of Services and the nodes that hold them, by the ledger and by
// the nodes' reports, the Services that lack an address, the pools, the Nodes and the routers.
func AddressesOf(s *Snapshot) (table.Page, error) {
	out := table.Page{NotSeen: s.NotSeen()}
	if err := s.Require(PartConfig | PartAddresses); err != nil {
		return out, err
	}
	a := s.Addressing()
	switch entries := a.Ledger.Entries(); {
	case a.Damage != nil:
		out.Notes = append(out.Notes, fmt.Sprintf("the ledger of addresses (ConfigMap %s/%s) can't be read, so nothing is handed out or moved: %v", system, addresses.LedgerName, a.Damage))
	case !s.AddressesOn() && len(entries) == 0:
		out.Notes = append(out.Notes,
			"no pool of addresses is configured: set addresses.pools ("+s.ConfigFrom+")")
		return out, nil
	case !s.AddressesOn():
		out.Notes = append(out.Notes, fmt.Sprintf("no pool of addresses is configured, and the ledger still has %d: configure their pools, or delete the Services", len(entries)))
	}
	held, pools := s.heldTable(a), s.poolsTable(a)
	out.Tables = []table.Table{held, s.waitingTable(a), pools, s.holdersTable(a), a.routers()}
	if len(held.Rows) == 0 && len(pools.Rows) > 0 {
		out.Lines = []string{"No Service has an address of the pools."}
	}
	return out, nil
}

func (s *Snapshot) heldTable(a Addressing) table.Table {
	t := table.New("addresses", "", "ADDRESS", "SERVICES", "POOL", "MOVER", "HOLDER",
		"+REPORTED BY", "STATE", ">EPOCH", "WHY")
	tones := map[string]table.Tone{
		AddressHeld: table.Good, AddressMoving: table.Warn, AddressNotSeen: table.Faint,
	}
	for _, h := range s.AddressHoldings(a) {
		holder, epoch := any(h.Assigned()), any(h.Epoch)
		if len(h.Nodes) > 2 {
			holder = fmt.Sprintf("%d nodes", len(h.Nodes))
		}
		if h.Epoch == 0 {
			epoch = table.Faint.Cell(table.None)
		}
		tone, known := tones[h.State]
		t.Add(h.Address, h.Services, table.OrNone(h.Pool), table.OrNone(string(h.Mover)), holder,
			h.HeldBy,
			table.Toned(tone.Cell(h.State), table.Bad, !known), epoch,
			table.Warn.Cell(table.OneLine(strings.Join(h.Notes, "; ")))).About = "Service/" + h.Services[0]
	}
	return t
}

// WaitingService is a Service that lacks a requested address.
type WaitingService struct {
	*corev1.Service
	Has []netip.Addr
	// Accepted is the Service's condition; nil before its first sync.
	Accepted *metav1.Condition
}

// Waiting returns the Services that lack an address, by namespace and name.
func (s *Snapshot) Waiting(a Addressing) (waiting []WaitingService) {
	for _, svc := range s.Services {
		if !svc.DeletionTimestamp.IsZero() || !s.WantsAddress(svc) {
			continue
		}
		w := WaitingService{
			svc, a.Ledger.Of(string(svc.UID)),
			meta.FindStatusCondition(svc.Status.Conditions, addresscontroller.ConditionAccepted),
		}
		if w.Refused() || len(w.Has) == 0 {
			waiting = append(waiting, w)
		}
	}
	return waiting
}

// Refused reports whether the Service's condition contains a problem.
func (w WaitingService) Refused() bool {
	return w.Accepted != nil && w.Accepted.Status == metav1.ConditionFalse
}

// Why returns the reason why the Service lacks an address.
func (w WaitingService) Why() string {
	switch {
	case w.Accepted == nil:
		return "no cloud controller manager has looked at it yet"
	case w.Accepted.Status == metav1.ConditionTrue:
		return "the ledger has no address of it"
	}
	return strings.TrimPrefix(w.Accepted.Reason+": "+w.Accepted.Message, ": ")
}

func (s *Snapshot) waitingTable(a Addressing) table.Table {
	t := table.New("waiting", "Not accepted", "SERVICE", "HAS", "WHY")
	for _, w := range s.Waiting(a) {
		name := NameOf(w.Service).String()
		t.Add(name, w.Has, table.Bad.Cell(table.OneLine(w.Why()))).About = "Service/" + name
	}
	return t
}

// AddressPoolUsage counts the addresses of one family of a pool. math.MaxUint64 means 2^64 or
// more.
type AddressPoolUsage struct {
	config.AddressPool
	Family     addresses.Family
	Size, Used uint64
}

// AddressPoolUsages returns the families that the configured pools have.
func (s *Snapshot) AddressPoolUsages(a Addressing) (usages []AddressPoolUsage) {
	for _, p := range s.Config.Addresses.Pools {
		for _, family := range []addresses.Family{addresses.IPv4, addresses.IPv6} {
			u := AddressPoolUsage{AddressPool: p, Family: family, Size: p.Size(family)}
			for _, e := range a.Ledger.Entries() {
				if len(e.Shares) > 0 && addresses.FamilyOf(e.Address) == family && p.Contains(e.Address) {
					u.Used++
				}
			}
			if u.Size > 0 {
				usages = append(usages, u)
			}
		}
	}
	return usages
}

// Selector returns the namespace selector; empty allows all namespaces.
func (u AddressPoolUsage) Selector() string {
	if u.Namespaces == nil {
		return ""
	}
	return u.Namespaces.String()
}

func (s *Snapshot) poolsTable(a Addressing) table.Table {
	t := table.New("pools", "Pools", "POOL", "FAMILY", "+RANGES", "MOVER", "FOR", ">SIZE", ">USED",
		">FREE")
	for _, u := range s.AddressPoolUsages(a) {
		admitted := "all"
		if selector := u.Selector(); selector != "" {
			admitted = "namespaces " + selector
		}
		if u.OnRequest {
			admitted += ", on request"
		}
		var ranges []string
		for _, r := range u.Ranges {
			if addresses.FamilyOf(r.First) == u.Family {
				ranges = append(ranges, r.String())
			}
		}
		size, free := any(u.Size), any(table.Toned(u.Size-u.Used, table.Bad, u.Size == u.Used))
		if u.Size == math.MaxUint64 {
			size, free = "2^64 and more", "2^64 and more"
		}
		t.Add(u.Name, u.Family.String(), ranges, string(u.Mover), admitted, size, u.Used, free)
	}
	return t
}

// holdersTable has all Nodes. Those without a deviation are shown in wide output only.
func (s *Snapshot) holdersTable(a Addressing) table.Table {
	t := table.New("nodes", "Nodes", "NODE", ">IS TO HOLD", ">HOLDS", ">REFUSES", "WHY")
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
		held, refused, wanted := len(report.Held), len(report.Refused), assigned[n.Name]
		holds := table.Toned(held, table.Warn, held != wanted)
		refuses := table.Toned(refused, table.Bad, refused > 0)
		if !reports {
			holds = table.Faint.Cell(table.None)
			refuses = holds
		}
		why := s.whyNoAddress(a, n)
		row := t.Add(n.Name, wanted, holds, refuses, table.Warn.Cell(table.OneLine(strings.Join(why,
			"; "))))
		row.About, row.Wide = "Node/"+n.Name, wanted == held && refused == 0 && len(why) == 0
	}
	return t
}

// whyNoAddress returns the reasons why a node is not eligible or releases its addresses.
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

// routers returns the BGP sessions of the nodes.
func (a Addressing) routers() table.Table {
	t := table.New("routers", "Routers", "ROUTER", "NODE", "SESSION", ">ANNOUNCED")
	for node, report := range a.Reports {
		for _, r := range report.Routers {
			session := table.Good.Cell("established")
			if !r.Established {
				session = table.Bad.Cell(cmp.Or(r.State, "down"))
			}
			t.Add(r.Name, node, session, r.Announced).About = "Node/" + node
		}
	}
	slices.SortFunc(t.Rows, func(x, y table.Row) int {
		return cmp.Or(cmp.Compare(x.Cells[0].Text, y.Cells[0].Text), cmp.Compare(x.Cells[1].Text,
			y.Cells[1].Text))
	})
	return t
}
