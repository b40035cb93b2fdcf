package survey

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/addresses"
	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	// AddressLedgerName is the ConfigMap in kube-system that says which Service has
	// which address, and which node holds it, below AddressLedgerKey.
	AddressLedgerName = addresscontroller.LedgerName
	AddressLedgerKey  = addresscontroller.LedgerKey
)

// addressesSettle is how long after the last change of the ledger nodes may take to
// follow it: the old holder waits up to 3 seconds for the new one, and both say so
// on their Nodes after that.
const addressesSettle = time.Minute

// Addressing is what is known of the addresses that nodes hold: by the ledger, and
// by the nodes themselves.
type Addressing struct {
	Ledger addresses.Ledger
	// Damage is why the stored ledger can't be read; nil: it can, or there is none.
	Damage error
	// Settled: the ledger has not changed within the last minute, so that what nodes
	// hold beside it is no move that is under way.
	Settled bool
	// Reports are what Nodes say, by name. Unreadable are Nodes whose report can't be
	// read; a Node that is in neither has said nothing.
	Reports    map[string]addresses.Report
	Unreadable map[string]error
	// Silent are the ports of nodes that count as silent by what their watchers say: most of them, or
	// one where the others can't be counted on.
	Silent  []addresses.Endpoint
	ready   []string
	since   map[string]time.Time    // when each report became as it is, where that is known
	holders map[netip.Addr][]string // by name
}

// AddressesOn reports whether addresses are handed out.
func (s *Snapshot) AddressesOn() bool {
	return s.Saw(PartConfig) && s.Config.Addresses.Enabled()
}

// AsksForAddress reports whether a Service is one that gets an address of the pools.
func (s *Snapshot) AsksForAddress(svc *corev1.Service) bool {
	return addresscontroller.Ours(svc, s.Config.Addresses.Classless)
}

// Addressing reads the ledger of addresses and the reports of Nodes. It needs
// PartNodes and PartAddresses; what of them was not seen is empty.
func (s *Snapshot) Addressing() Addressing {
	a := Addressing{Settled: true, Reports: map[string]addresses.Report{}, Unreadable: map[string]error{}, since: map[string]time.Time{}, holders: map[netip.Addr][]string{}}
	if s.AddressLedger != nil {
		a.Ledger, a.Damage = addresses.ParseLedger([]byte(s.AddressLedger.Data[AddressLedgerKey]))
		a.Settled = s.Taken.Sub(changed(s.AddressLedger.ManagedFields, "")) > addressesSettle
	}
	for _, n := range s.Nodes {
		if kube.Ready(n) {
			a.ready = append(a.ready, n.Name)
		}
		text, said := n.Annotations[addresses.ReportAnnotation]
		if !said {
			continue
		}
		report, err := addresses.ParseReport(text)
		if err != nil {
			a.Unreadable[n.Name] = err
			continue
		}
		a.Reports[n.Name], a.since[n.Name] = report, changed(n.ManagedFields, reportField)
		for _, h := range report.Held {
			a.holders[h.Address] = append(a.holders[h.Address], n.Name)
		}
	}
	a.Silent = slices.Concat(addresses.Silent(a.Reports, a.ready))
	return a
}

// Lasting is what was known a minute before the look and is so still: reports that
// changed since say nothing.
func (a Addressing) Lasting(look time.Time) Addressing {
	lasting := a
	lasting.Reports = make(map[string]addresses.Report, len(a.Reports))
	for node, r := range a.Reports {
		if look.Sub(a.since[node]) <= addressesSettle {
			r = addresses.Report{}
		}
		lasting.Reports[node] = r
	}
	lasting.Silent = slices.Concat(addresses.Silent(lasting.Reports, a.ready))
	return lasting
}

// reportField is how the API server notes who wrote a report.
const reportField = `"f:` + addresses.ReportAnnotation + `"`

// changed is when an object was written last, as far as the API server noted it; of
// those that wrote a certain field, if one is given.
func changed(entries []metav1.ManagedFieldsEntry, field string) (last time.Time) {
	for _, e := range entries {
		of := field == "" || e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(field))
		if of && e.Time != nil && e.Time.After(last) {
			last = e.Time.Time
		}
	}
	return last
}

// Holders are the nodes that say that they hold an address, by name.
func (a Addressing) Holders(address netip.Addr) []string { return a.holders[address] }

// Refusal is what a node says against holding an address.
func (a Addressing) Refusal(node string, address netip.Addr) (addresses.Problem, bool) {
	for _, p := range a.Reports[node].Refused {
		if p.Address == address {
			return p, true
		}
	}
	return addresses.Problem{}, false
}

// SilentOf are those ports of a node that its watchers call silent.
func (a Addressing) SilentOf(node string, ports []int) (silent []int) {
	for _, e := range a.Silent {
		if e.Node == node && slices.Contains(ports, e.Port) {
			silent = append(silent, e.Port)
		}
	}
	return silent
}

// Ports are those by which the holder of an address is watched: where kube-proxy tells
// whether it serves the address, and whether it serves at all, and where the agent tells
// that it answers for it, if that is how traffic comes to the node.
func (r AddressRow) Ports() []int {
	ports := []int{r.Check, addresses.ProxyPort}
	if mover := config.Mover(r.Mover); mover == config.Layer2 || mover == config.FloatingIP {
		ports = append(ports, addresses.AgentPort)
	}
	return ports
}

// AddressPool is the pool that an address belongs to.
func (s *Snapshot) AddressPool(address netip.Addr) (config.AddressPool, bool) {
	i := slices.IndexFunc(s.Config.Addresses.Pools, func(p config.AddressPool) bool { return p.Contains(address) })
	if i < 0 {
		return config.AddressPool{}, false
	}
	return s.Config.Addresses.Pools[i], true
}
