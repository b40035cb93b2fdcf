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

// addressesSettle is how long nodes may take to converge after a change of the ledger: the
// previous holder waits up to 3 seconds for the new holder, and then both update their reports.
const addressesSettle = time.Minute

// Addressing combines the ledger of addresses with the nodes' reports.
type Addressing struct {
	Ledger addresses.Ledger
	// Damage is the error of parsing Ledger.
	Damage error
	// Settled: the ledger has not changed for a minute, so no move is in progress.
	Settled bool
	// Reports and Unreadable have the Nodes' reports and their parse errors, by the Node's name.
	Reports    map[string]addresses.Report
	Unreadable map[string]error
	// Silent are the ports of nodes that count as unreachable: by most of the nodes that monitor
	// them, or by a single one if the others are unreachable themselves.
	Silent  []addresses.Endpoint
	ready   []string
	since   map[string]time.Time    // when each report changed last, if known
	holders map[netip.Addr][]string // node names, sorted
}

// AddressesOn reports whether address pools are configured.
func (s *Snapshot) AddressesOn() bool {
	return s.Saw(PartConfig) && s.Config.Addresses.Enabled()
}

// WantsAddress reports whether a Service gets an address from the pools.
func (s *Snapshot) WantsAddress(svc *corev1.Service) bool {
	return addresscontroller.Ours(svc, s.Config.Addresses.Classless)
}

// Addressing parses the ledger of addresses and the reports of Nodes. It requires PartNodes and
// PartAddresses; without them, the respective fields are empty.
func (s *Snapshot) Addressing() Addressing {
	a := Addressing{
		Settled: true, Reports: map[string]addresses.Report{}, Unreadable: map[string]error{},
		since: map[string]time.Time{}, holders: map[netip.Addr][]string{},
	}
	if s.AddressLedger != nil {
		a.Ledger, a.Damage = addresses.ParseLedger([]byte(s.AddressLedger.Data[addresses.LedgerKey]))
		a.Settled = s.Taken.Sub(changed(s.AddressLedger.ManagedFields, "")) > addressesSettle
	}
	for _, n := range s.Nodes {
		if kube.Ready(n) {
			a.ready = append(a.ready, n.Name)
		}
		text, exists := n.Annotations[addresses.ReportAnnotation]
		if !exists {
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
	a.Silent = addresses.Silent(a.Reports, a.ready)
	return a
}

// Lasting returns a copy of a with only the reports that had not changed for a minute at look.
func (a Addressing) Lasting(look time.Time) Addressing {
	lasting := a
	lasting.Reports = make(map[string]addresses.Report, len(a.Reports))
	for node, r := range a.Reports {
		if look.Sub(a.since[node]) <= addressesSettle {
			r = addresses.Report{}
		}
		lasting.Reports[node] = r
	}
	lasting.Silent = addresses.Silent(lasting.Reports, a.ready)
	return lasting
}

// reportField is the key of a report in managedFields.
const reportField = `"f:` + addresses.ReportAnnotation + `"`

// changed returns the time of the last write by managedFields, of field only if that is set.
func changed(entries []metav1.ManagedFieldsEntry, field string) (last time.Time) {
	for _, e := range entries {
		of := field == "" || e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(field))
		if of && e.Time != nil && e.Time.After(last) {
			last = e.Time.Time
		}
	}
	return last
}

// Refusal returns the problem for which a node refuses to hold an address.
func (a Addressing) Refusal(node string, address netip.Addr) (addresses.Problem, bool) {
	for _, p := range a.Reports[node].Refused {
		if p.Address == address {
			return p, true
		}
	}
	return addresses.Problem{}, false
}

// SilentOf returns those of a node's ports that are in Silent.
func (a Addressing) SilentOf(node string, ports []int) (silent []int) {
	for _, e := range a.Silent {
		if e.Node == node && slices.Contains(ports, e.Port) {
			silent = append(silent, e.Port)
		}
	}
	return silent
}

// AddressPool returns the configured pool that contains an address.
func (s *Snapshot) AddressPool(address netip.Addr) (config.AddressPool, bool) {
	i := slices.IndexFunc(s.Config.Addresses.Pools, func(p config.AddressPool) bool {
		return p.Contains(address)
	})
	if i < 0 {
		return config.AddressPool{}, false
	}
	return s.Config.Addresses.Pools[i], true
}
