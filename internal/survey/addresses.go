package survey

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/addresses"
	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
)

// AddressesView lists the addresses of Services and the nodes that hold them.
type AddressesView struct {
	Addresses []AddressRow     `json:"addresses"`
	Waiting   []WaitingRow     `json:"waiting,omitempty"`
	Pools     []AddressPoolRow `json:"pools"`
	Nodes     []AddressNodeRow `json:"nodes"`
	Routers   []RouterRow      `json:"routers,omitempty"`
	Notes     []string         `json:"notes,omitempty"`
	NotSeen   []string         `json:"notSeen,omitempty"`
}

// AddressRow is an address of one or more Services.
type AddressRow struct {
	Address netip.Addr `json:"address"`
	// Services are namespace/name.
	Services []string `json:"services"`
	// Pool and Mover are empty if no configured pool contains the address.
	Pool  string `json:"pool,omitempty"`
	Mover string `json:"mover,omitempty"`
	// Holder is the node that should hold the address, Nodes the ones that announce it together.
	Holder string   `json:"holder,omitempty"`
	Nodes  []string `json:"nodes,omitempty"`
	Epoch  uint64   `json:"epoch,omitempty"`
	// Local: only nodes with ready endpoints of the Service hold the address.
	Local bool `json:"local,omitempty"`
	// Check is the port of kube-proxy's health check for the address on its holder.
	Check  int      `json:"check"`
	HeldBy []string `json:"heldBy"`
	State  string   `json:"state"`
	Notes  []string `json:"notes,omitempty"`
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

// WaitingRow is a Service that lacks a requested address.
type WaitingRow struct {
	Service string       `json:"service"`
	Has     []netip.Addr `json:"has,omitempty"`
	// Accepted is the Service's condition; nil before its first sync.
	Accepted *ConditionRow `json:"accepted,omitempty"`
	Age      time.Duration `json:"-"`
}

// AddressPoolRow is one address family of a pool.
type AddressPoolRow struct {
	Name   string   `json:"name"`
	Family string   `json:"family"`
	Ranges []string `json:"ranges"`
	Mover  string   `json:"mover"`
	// OnRequest: only Services that request the pool get addresses from it.
	OnRequest bool `json:"onRequest,omitempty"`
	// Namespaces is the namespace selector; empty allows all namespaces.
	Namespaces string `json:"namespaces,omitempty"`
	// Size and Free count addresses; math.MaxUint64 means 2^64 or more.
	Size uint64 `json:"size"`
	Used uint64 `json:"used"`
	Free uint64 `json:"free"`
}

// AddressNodeRow is a Node as a holder of addresses.
type AddressNodeRow struct {
	Node string `json:"node"`
	// The counts of addresses that the node should hold, reports as held, and reports as
	// refused.
	Assigned int  `json:"assigned"`
	Held     int  `json:"held"`
	Refused  int  `json:"refused,omitempty"`
	Reports  bool `json:"reports"`
	// Why lists the reasons why the node is not eligible or releases its addresses.
	Why []string `json:"why,omitempty"`
}

// RouterRow is a BGP session of a node.
type RouterRow struct {
	Node        string `json:"node"`
	Router      string `json:"router"`
	Established bool   `json:"established"`
	State       string `json:"state,omitempty"`
	Announced   int    `json:"announced"`
}

// AddressesParts are the parts of AddressesOf; PartConfig and PartAddresses are required.
const AddressesParts = PartConfig | PartNodes | PartAddresses | PartServices

// AddressesOf combines the ledger, the nodes' reports and the Services.
func AddressesOf(s *Snapshot) (AddressesView, error) {
	v := AddressesView{Addresses: []AddressRow{}, Pools: []AddressPoolRow{}, Nodes: []AddressNodeRow{}, NotSeen: s.NotSeen()}
	if err := s.Require(PartConfig | PartAddresses); err != nil {
		return v, err
	}
	a := s.Addressing()
	switch entries := a.Ledger.Entries(); {
	case a.Damage != nil:
		v.Notes = append(v.Notes, fmt.Sprintf("the ledger of addresses (ConfigMap %s/%s) can't be read, so nothing is handed out or moved: %v", system, addresses.LedgerName, a.Damage))
	case !s.AddressesOn() && len(entries) == 0:
		v.Notes = append(v.Notes, "no pool of addresses is configured: set addresses.pools ("+s.ConfigFrom+")")
		return v, nil
	case !s.AddressesOn():
		v.Notes = append(v.Notes, fmt.Sprintf("no pool of addresses is configured, and the ledger still has %d: configure their pools, or delete the Services", len(entries)))
	}
	for _, e := range a.Ledger.Entries() {
		if len(e.Shares) > 0 {
			v.Addresses = append(v.Addresses, s.addressRow(a, e))
		}
	}
	v.Pools = append(v.Pools, s.addressPools(a.Ledger)...)
	v.Nodes = append(v.Nodes, s.addressNodes(a)...)
	v.Routers = a.routers()
	if s.Saw(PartServices) {
		v.Waiting = s.waiting(a.Ledger)
	}
	return v, nil
}

func (s *Snapshot) addressPools(l addresses.Ledger) (rows []AddressPoolRow) {
	for _, p := range s.Config.Addresses.Pools {
		for _, family := range []addresses.Family{addresses.IPv4, addresses.IPv6} {
			row := AddressPoolRow{Name: p.Name, Family: family.String(), Ranges: []string{}, Mover: string(p.Mover), OnRequest: p.OnRequest, Size: p.Size(family)}
			if row.Size == 0 {
				continue
			}
			if p.Namespaces != nil && !p.Namespaces.Empty() {
				row.Namespaces = p.Namespaces.String()
			}
			for _, r := range p.Ranges {
				if addresses.FamilyOf(r.First) == family {
					row.Ranges = append(row.Ranges, r.String())
				}
			}
			for _, e := range l.Entries() {
				if len(e.Shares) > 0 && addresses.FamilyOf(e.Address) == family && p.Contains(e.Address) {
					row.Used++
				}
			}
			if row.Free = row.Size - row.Used; row.Size == math.MaxUint64 {
				row.Free = math.MaxUint64
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (a Addressing) routers() (rows []RouterRow) {
	for node, r := range a.Reports {
		for _, router := range r.Routers {
			rows = append(rows, RouterRow{Node: node, Router: router.Name, Established: router.Established, State: router.State, Announced: router.Announced})
		}
	}
	slices.SortFunc(rows, func(a, b RouterRow) int {
		return strings.Compare(a.Router+"\x00"+a.Node, b.Router+"\x00"+b.Node)
	})
	return rows
}

func (s *Snapshot) waiting(l addresses.Ledger) (rows []WaitingRow) {
	for _, svc := range s.Services {
		if !svc.DeletionTimestamp.IsZero() || !s.WantsAddress(svc) {
			continue
		}
		row := WaitingRow{Service: NameOf(svc).String(), Has: l.Of(string(svc.UID)), Age: s.Taken.Sub(svc.CreationTimestamp.Time)}
		refused := false
		if c := meta.FindStatusCondition(svc.Status.Conditions, addresscontroller.ConditionAccepted); c != nil {
			row.Accepted = &ConditionRow{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time}
			refused = c.Status == metav1.ConditionFalse
		}
		if refused || len(row.Has) == 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// By returns the nodes that should hold the address, empty if there are none.
func (r AddressRow) By() string {
	if len(r.Nodes) > 0 {
		return strings.Join(r.Nodes, ", ")
	}
	return r.Holder
}

// Session returns the human-readable state of the BGP session.
func (r RouterRow) Session() string {
	switch {
	case r.Established:
		return "established"
	case r.State != "":
		return r.State
	}
	return "down"
}

// Why returns the reason why the Service lacks an address.
func (r WaitingRow) Why() string {
	switch {
	case r.Accepted == nil:
		return "no cloud controller manager has looked at it yet"
	case r.Accepted.Status == string(metav1.ConditionTrue):
		return "the ledger has no address of it"
	}
	return strings.TrimPrefix(r.Accepted.Reason+": "+r.Accepted.Message, ": ")
}
