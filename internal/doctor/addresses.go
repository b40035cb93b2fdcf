package doctor

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/addresses"
	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/survey"
)

const (
	addressLedgerObject = "ConfigMap/kube-system/" + addresses.LedgerName
	// seesAddresses are the parts that determine the holders of addresses.
	seesAddresses = survey.PartConfig | survey.PartNodes | survey.PartAddresses
	// countedPool is the least size of a pool for a warning that it is nearly full.
	countedPool = 10
	// noNode is the condition reason of a Service for which no node is eligible.
	noNode = "NoNodeForAddress"
)

func addressChecks() []check {
	return []check{
		newCheck("address-ledger", Error, (*cluster).addresses, survey.PartAddresses|survey.PartServices,
			"restore the ConfigMap from a backup, or leave it to the cloud controller manager to rebuild it from the Services: "+managerLogs, addressLedger),
		newCheck("address-removed-pool", Error, nil, survey.PartConfig|survey.PartAddresses,
			"configure the pool as before, with onRequest: true if nothing new is to come from it; remove it once no Service has an address of it", addressRemovedPool),
		newCheck("address-pool-room", Warning, (*cluster).addresses, survey.PartAddresses,
			"add ranges (key addresses.pools of underlay-config), or set onRequest: true on a pool of which each address is meant to be in use", addressPoolRoom),
		newCheck("address-waiting", Error, (*cluster).addresses, survey.PartAddresses|survey.PartServices,
			"correct the Service or the pools as the message describes; see docs/reference/addresses.md",
			addressWaiting),
		newCheck("address-kube-proxy", Error, (*cluster).addresses, hasProxy,
			"set mode: nftables: "+proxyEdit, addressKubeProxy),
	}
}

func (x *cluster) addresses() bool { return x.Config.Addresses.Enabled() }

func addressObject(a netip.Addr) string { return "address/" + a.String() }

func addressLedger(x *cluster) []Finding {
	switch {
	case x.addressing.Damage != nil:
		return []Finding{{
			Object: addressLedgerObject,
			What:   "it can't be read, so no address is handed out or moved: " + x.addressing.Damage.Error(),
			Remedy: "correct its key " + addresses.LedgerKey + " as the message describes, or restore it from a backup: kubectl -n kube-system edit configmap " + addresses.LedgerName,
		}}
	case x.AddressLedger != nil && x.AddressLedger.Data[addresses.LedgerKey] != "":
		return nil
	}
	var have []string
	for _, svc := range x.Services {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(in.IP); err == nil && x.WantsAddress(svc) {
				if _, ours := x.AddressPool(a); ours {
					have = append(have, fmt.Sprintf("%s (%s)", survey.NameOf(svc), a))
				}
			}
		}
	}
	if len(have) == 0 {
		return nil
	}
	return []Finding{
		{
			Object: addressLedgerObject,
			What:   "it is lost or empty, although Services have addresses: " + few(have),
		},
	}
}

func addressRemovedPool(x *cluster) (found []Finding) {
	for _, e := range x.addressing.Ledger.Entries() {
		if _, configured := x.AddressPool(e.Address); configured || len(e.Shares) == 0 {
			continue
		}
		// The controller exits with this error at startup.
		orphan := addresscontroller.Orphan{Address: e.Address, Users: e.Shares}
		found = append(found, Finding{
			Object: addressObject(e.Address), What: e.Address.String() + " " + orphan.Problem(),
			Remedy: orphan.Remedy(),
		})
	}
	return found
}

// addressPoolRoom adds up the pools of a family that serve the same namespaces: a full pool is
// no problem while another has free addresses.
func addressPoolRoom(x *cluster) (found []Finding) {
	type group struct {
		family     addresses.Family
		namespaces string
	}
	var groups []group
	names, size, used := map[group][]string{}, map[group]uint64{}, map[group]uint64{}
	for _, p := range x.AddressPoolUsages(x.addressing) {
		g := group{p.Family, p.Selector()}
		if p.OnRequest {
			continue
		}
		if names[g] == nil {
			groups = append(groups, g)
		}
		names[g] = append(names[g], p.Name)
		size[g] += min(p.Size, math.MaxUint64-size[g])
		used[g] += p.Used
	}
	for _, g := range groups {
		size, left := size[g], size[g]-used[g]
		if left == 0 || size >= countedPool && left < (size+9)/10 {
			found = append(found, about("pool/"+names[g][0],
				"%d of %d %s addresses of %s are left", left, size, g.family, strings.Join(names[g], ", ")))
		}
	}
	return found
}

func addressWaiting(x *cluster) (found []Finding) {
	for _, w := range x.Waiting(x.addressing) {
		f := Finding{Object: serviceObject(w.Service)}
		switch age := x.age(w.CreationTimestamp.Time); {
		case w.Accepted == nil && age <= survey.GracePeriod:
			continue
		case w.Accepted == nil:
			f.What, f.Remedy = unnoticed(age)
		case !w.Refused() || x.coveredByHolder(w):
			continue // the checks of the ledger and of holders report this
		case len(w.Has) > 0:
			f.Severity, f.What = Warning, fmt.Sprintf("it has %s: %s", survey.Join(w.Has, ", "), w.Why())
		default:
			f.What = "it has no address: " + w.Why()
		}
		found = append(found, f)
	}
	return found
}

// coveredByHolder reports whether a check of the Service's addresses covers its problem: another
// machine uses an address, or no node holds it.
func (x *cluster) coveredByHolder(w survey.WaitingService) bool {
	unheld := func(h survey.AddressHolding) bool {
		return slices.Contains(w.Has, h.Address) && !carried(h)
	}
	return w.Accepted.Reason == string(addresses.InUse) ||
		w.Accepted.Reason == noNode && slices.ContainsFunc(x.holdings, unheld)
}

func addressKubeProxy(x *cluster) []Finding {
	if x.proxy.Mode != "ipvs" {
		return nil
	}
	return []Finding{about(proxyObject,
		"mode is ipvs: each node has every Service's address on an interface of its own, also if another node holds it, and redirects packets where the agent's filter has rejected them already")}
}
