package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/ipam"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
)

// podCIDRChecks are about what Nodes have of the pools.
func podCIDRChecks() []check {
	return []check{
		newCheck("node-without-podcidr", Error, (*cluster).allocates, survey.PartNodes,
			"see why: kubectl describe node; "+managerLogs, eachNode(withoutPodCIDR)),
		newCheck("duplicate-podcidr", Error, (*cluster).allocates, hasBook,
			"delete one of the two Nodes and let it join again",
			bookWarnings(Error, ipam.Duplicate, ipam.DuplicateRecord)),
		newCheck("foreign-podcidr", Warning, (*cluster).allocates, hasBook,
			"add a pool that covers it, or delete the Node and let it join again",
			bookWarnings(Warning, ipam.OutsidePools, ipam.WrongSize, ipam.Excluded)),
		newCheck("missing-family", Warning, (*cluster).allocates, hasBook,
			"delete the Node and let it join again", bookWarnings(Warning, ipam.MissingFamily)),
	}
}

func withoutPodCIDR(x *cluster, n *corev1.Node) (what, remedy string) {
	since, late := x.waiting(n)
	if kube.HasPodCIDRs(n) || !late {
		return "", ""
	}
	why := "nothing says why"
	if c := kube.Condition(n, ipamcontroller.PodCIDRsAllocated); c != nil && c.Status == corev1.ConditionFalse {
		why = c.Reason + ": " + c.Message
	}
	return fmt.Sprintf("it joined %s ago and has no podCIDR; %s", long(since), why), ""
}

// bookWarnings are what the ledger says of Nodes' podCIDRs, each once.
func bookWarnings(severity Severity, kinds ...ipam.WarningKind) func(*cluster) []Finding {
	return func(x *cluster) []Finding {
		var found []Finding
		told := map[string]bool{}
		// What Nodes have comes after what is stored, and says more.
		for _, w := range slices.Backward(x.book.Warnings) {
			about := fmt.Sprint(w.Node.UID, w.Prefix)
			if !slices.Contains(kinds, w.Kind) || told[about] {
				continue
			}
			told[about] = true
			what, remedy := halves(w.String())
			found = append(found, Finding{Severity: severity, Object: "Node/" + w.Node.Name, What: what, Remedy: remedy})
		}
		if slices.Contains(kinds, ipam.OutsidePools) {
			found = append(found, x.unreadable()...)
		}
		return found
	}
}

// unreadable are podCIDRs that an API server of long ago let in.
func (x *cluster) unreadable() (found []Finding) {
	for _, n := range x.Nodes {
		if _, err := kube.PodCIDRs(n); err != nil {
			found = append(found, Finding{Object: nodeObject(n), What: err.Error()})
		}
	}
	return found
}
