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

// AddressesView is which Service has which address, and which node holds it.
type AddressesView struct {
	Addresses []AddressRow `json:"addresses"`
	// Waiting are Services that don't have all that they ask for, or whose address nobody
	// can hold.
	Waiting []WaitingRow     `json:"waiting,omitempty"`
	Pools   []AddressPoolRow `json:"pools"`
	Nodes   []AddressNodeRow `json:"nodes"`
	Routers []RouterRow      `json:"routers,omitempty"`
	Notes   []string         `json:"notes,omitempty"`
	NotSeen []string         `json:"notSeen,omitempty"`
}

// AddressRow is an address that Services have.
type AddressRow struct {
	Address netip.Addr `json:"address"`
	// Services are namespace/name, those that share it all.
	Services []string `json:"services"`
	// Pool and Mover are empty where no configured pool has the address.
	Pool  string `json:"pool,omitempty"`
	Mover string `json:"mover,omitempty"`
	// Holder is the node that is to hold it by the ledger; Nodes are those that are to
	// hold it together.
	Holder string   `json:"holder,omitempty"`
	Nodes  []string `json:"nodes,omitempty"`
	Epoch  uint64   `json:"epoch,omitempty"`
	// Local: only nodes with ready endpoints of the Service hold it.
	Local bool `json:"local,omitempty"`
	// Check is the port of its holder at which kube-proxy tells whether it serves.
	Check int `json:"check"`
	// HeldBy are the nodes that say that they hold it.
	HeldBy []string `json:"heldBy"`
	// State is one of the words below.
	State string   `json:"state"`
	Notes []string `json:"notes,omitempty"`
}

// The states of an address.
const (
	// AddressHeld: whoever is to hold it says that it does, and nobody else.
	AddressHeld = "held"
	// AddressMoving: the ledger changed within the last minute, and nodes follow.
	AddressMoving = "moving"
	// AddressHeldTwice: a node holds it beside the one that is to.
	AddressHeldTwice = "held twice"
	// AddressNotHeld: the node that is to hold it does not say that it does.
	AddressNotHeld = "not held"
	// AddressRefused: the node that is to hold it says why it does not.
	AddressRefused = "refused"
	// AddressNoHolder: no node could hold it so far.
	AddressNoHolder = "no holder"
	// AddressNotSeen: the Nodes were not seen.
	AddressNotSeen = "not seen"
)

// WaitingRow is a Service that asks for an address.
type WaitingRow struct {
	Service string `json:"service"`
	// Has are the addresses that it has all the same.
	Has []netip.Addr `json:"has,omitempty"`
	// Accepted is its condition; nil: nobody has looked at the Service yet.
	Accepted *ConditionRow `json:"accepted,omitempty"`
	Age      time.Duration `json:"-"`
}

// AddressPoolRow is one address family of a pool.
type AddressPoolRow struct {
	Name   string   `json:"name"`
	Family string   `json:"family"`
	Ranges []string `json:"ranges"`
	Mover  string   `json:"mover"`
	// OnRequest: only Services that ask for it get an address of it.
	OnRequest bool `json:"onRequest,omitempty"`
	// Namespaces is the selector; empty: every namespace.
	Namespaces string `json:"namespaces,omitempty"`
	// Size and Free count addresses; the largest number stands for all above it.
	Size uint64 `json:"size"`
	Used uint64 `json:"used"`
	Free uint64 `json:"free"`
}

// AddressNodeRow is a Node as a holder of addresses.
type AddressNodeRow struct {
	Node string `json:"node"`
	// Assigned are how many addresses it is to hold, Held how many it says it holds,
	// and Refused how many it says it can't.
	Assigned int `json:"assigned"`
	Held     int `json:"held"`
	Refused  int `json:"refused,omitempty"`
	// Reports: its agent says what it holds.
	Reports bool `json:"reports"`
	// Why is what keeps it from holding any, or makes it give them up; empty: nothing.
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

// AddressesParts are what AddressesOf needs; all but PartConfig and PartAddresses is
// shown as not seen.
const AddressesParts = PartConfig | PartNodes | PartAddresses | PartServices

// AddressesOf joins the ledger, what nodes say, and the Services.
func AddressesOf(s *Snapshot) (AddressesView, error) {
	v := AddressesView{Addresses: []AddressRow{}, Pools: []AddressPoolRow{}, Nodes: []AddressNodeRow{}, NotSeen: s.NotSeen()}
	if err := s.Require(PartConfig | PartAddresses); err != nil {
		return v, err
	}
	a := s.Addressing()
	switch entries := a.Ledger.Entries(); {
	case a.Damage != nil:
		v.Notes = append(v.Notes, fmt.Sprintf("the ledger of addresses (ConfigMap %s/%s) can't be read, so nothing is handed out or moved: %v", system, AddressLedgerName, a.Damage))
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

// waiting are the Services that have less than they ask for.
func (s *Snapshot) waiting(l addresses.Ledger) (rows []WaitingRow) {
	for _, svc := range s.Services {
		if !svc.DeletionTimestamp.IsZero() || !s.AsksForAddress(svc) {
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

// By is who is to hold it; empty: nobody.
func (r AddressRow) By() string {
	if len(r.Nodes) > 0 {
		return strings.Join(r.Nodes, ", ")
	}
	return r.Holder
}

// Session is the state of the session for people.
func (r RouterRow) Session() string {
	switch {
	case r.Established:
		return "established"
	case r.State != "":
		return r.State
	}
	return "down"
}

// Why is what the Service waits for.
func (r WaitingRow) Why() string {
	switch {
	case r.Accepted == nil:
		return "no cloud controller manager has looked at it yet"
	case r.Accepted.Status == string(metav1.ConditionTrue):
		return "the ledger has no address of it"
	}
	return strings.TrimPrefix(r.Accepted.Reason+": "+r.Accepted.Message, ": ")
}
