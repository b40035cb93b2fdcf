package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/ipam"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/routes"
)

// fullPercent is the usage of a pool, in percent, from which it is worth a warning: planning
// another range takes time.
const fullPercent = 90

func poolChecks() []check {
	return []check{
		newCheck("pool-overlap", Error, nil, survey.PartConfig|survey.PartServiceCIDRs,
			"choose ranges that lie apart, and let the pool that overlaps drain (state: draining)",
			poolOverlap),
		newCheck("pool-room", Error, (*cluster).allocates, hasBook,
			"add a pool of the same address family (key pools of underlay-config)", poolRoom),
		newCheck("removed-pool", Error, (*cluster).allocates, hasBook,
			"configure the pool as before with state: draining", removedPool),
	}
}

func poolOverlap(x *cluster) []Finding {
	var problems []routes.Finding
	for _, p := range x.Pools() {
		if !p.Own {
			problems = append(problems, routes.Check(routes.Layout{
				Pods:     []routes.Range{{Prefix: p.Prefix, NodeBits: p.NodeMask}},
				Services: x.ServiceRanges(),
				Network:  netip.PrefixFrom(p.Prefix.Addr(), 0).Masked(), // contains every pool
			})...)
		}
	}
	var found []Finding
	if x.routed() {
		if reason, blind := x.blind(survey.PartNetwork); blind {
			found = unseen("whether pools overlap the network's subnets: " + reason)
		} else if x.Network != nil {
			problems = append(problems, routes.Check(routes.Layout{
				Pods: x.Ranges(), Network: x.Network.IPRange, Subnets: x.Network.Subnets,
			})...)
		}
	}
	for _, f := range problems {
		found = append(found, ofRoutes(f))
	}
	if _, err := ipam.NewLedger(x.Pools(), x.Exclusions()); err != nil && len(problems) == 0 &&
		x.allocates() {
		found = append(found, Finding{
			What: err.Error(), Remedy: "correct pools and exclude in underlay-config",
		})
	}
	return found
}

func ofRoutes(f routes.Finding) Finding {
	out := Finding{Severity: Warning, What: f.Problem, Remedy: f.Remedy}
	if f.Fatal {
		out.Severity = Error
	}
	if f.Prefix.IsValid() {
		out.Object, out.What = f.Prefix.String(), f.Prefix.String()+" "+f.Problem
	}
	return out
}

func poolRoom(x *cluster) (found []Finding) {
	for i, c := range x.book.Counts() {
		all := c.Free + c.Allocated + c.Quarantined + c.Foreign
		if c.State != ipam.Active || !c.Pool.IsValid() || !nearlyFull(c) || x.relieved(i) {
			continue
		}
		f := Finding{
			Object: "pool/" + c.Name, Severity: Warning,
			What: fmt.Sprintf("%d of %d podCIDRs of pool %s (%s, /%d for each Node) are left: %d Nodes have one, %d are in quarantine",
				c.Free, all, c.Name, c.Pool, c.NodeMask, c.Allocated, c.Quarantined),
		}
		if c.Free == 0 {
			f.Severity = Error
			f.What += "; the next Node gets none, and no pods"
		}
		found = append(found, f)
	}
	return found
}

func nearlyFull(c ipam.Counts) bool {
	all := c.Free + c.Allocated + c.Quarantined + c.Foreign
	return (all-c.Free)*100 >= all*fullPercent
}

// relieved reports whether another active pool with free prefixes, of the same family, serves
// the same Nodes as the i-th pool, or all Nodes. Pools for all don't serve dedicated servers.
func (x *cluster) relieved(i int) bool {
	pools, counts := x.Config.IPAM.Pools, x.book.Counts()
	for j, other := range pools {
		ipv6 := other.Own || other.Prefix.Addr().Is6()
		forSame := other.Selector == nil ||
			pools[i].Selector != nil && other.Selector.String() == pools[i].Selector.String()
		forSame = forSame && other.VSwitch == pools[i].VSwitch
		room := other.Own || !nearlyFull(counts[j])
		if i != j && !other.Draining && ipv6 == pools[i].Prefix.Addr().Is6() && forSame && room {
			return true
		}
	}
	return false
}

func removedPool(x *cluster) []Finding {
	held := map[string][]string{}
	var names []string
	for _, o := range x.book.Removed() {
		if held[o.Pool] == nil {
			names = append(names, o.Pool)
		}
		held[o.Pool] = append(held[o.Pool], fmt.Sprintf("%s (%s)", o.Node.Name, o.Prefix))
	}
	var found []Finding
	for _, name := range names {
		// The controller exits with this error at startup.
		e := ipamcontroller.RemovedPoolError{Pool: name, Holders: few(held[name])}
		found = append(found, Finding{
			Object: "pool/" + name, What: fmt.Sprintf("pool %s is %s", name, e.Problem()),
			Remedy: e.Remedy(),
		})
	}
	return found
}

func podCIDRChecks() []check {
	return []check{
		newCheck("node-without-podcidr", Error, (*cluster).allocates, survey.PartNodes,
			"see why: kubectl describe node; "+managerLogs, eachNode(withoutPodCIDR)),
		newCheck("duplicate-podcidr", Error, (*cluster).allocates, hasBook,
			"delete one of the two Nodes and let it join again",
			bookWarnings(ipam.Duplicate, ipam.DuplicateRecord)),
		newCheck("foreign-podcidr", Warning, (*cluster).allocates, hasBook,
			"add a pool that covers it, or delete the Node and let it join again",
			bookWarnings(ipam.OutsidePools, ipam.WrongSize, ipam.Excluded)),
		newCheck("missing-family", Warning, (*cluster).allocates, hasBook,
			"delete the Node and let it join again", bookWarnings(ipam.MissingFamily)),
	}
}

func withoutPodCIDR(x *cluster, n *corev1.Node) (what, remedy string) {
	since, late := x.waiting(n)
	if kube.HasPodCIDRs(n) || !late {
		return "", ""
	}
	why := "no reason is recorded"
	if c := kube.Condition(n, ipamcontroller.PodCIDRsAllocated); c != nil &&
		c.Status == corev1.ConditionFalse {
		why = c.Reason + ": " + c.Message
	}
	return fmt.Sprintf("it joined %s ago and has no podCIDR; %s", duration.HumanDuration(since), why),
		""
}

// bookWarnings returns a check for some kinds of the ledger's warnings, one per Node and prefix.
func bookWarnings(kinds ...ipam.WarningKind) func(*cluster) []Finding {
	return func(x *cluster) (found []Finding) {
		seen := map[string]bool{}
		// Warnings about Nodes follow those about stored records, and are more specific.
		for _, w := range slices.Backward(x.book.Warnings) {
			about := fmt.Sprint(w.Node.UID, w.Prefix)
			if slices.Contains(kinds, w.Kind) && !seen[about] {
				what, remedy, _ := strings.Cut(w.String(), ": ")
				found = append(found, Finding{Object: "Node/" + w.Node.Name, What: what, Remedy: remedy})
				seen[about] = true
			}
		}
		return found
	}
}
