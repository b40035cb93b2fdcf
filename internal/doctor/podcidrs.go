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
		{
			name:       "node-without-podcidr",
			looks:      "whether a Node waits longer than 5 minutes for podCIDRs, and why (condition `underlay.dev/PodCIDRsAllocated`)",
			severities: []Severity{Error},
			remedy:     "see why: kubectl describe node; " + managerLogs,
			concerns:   (*cluster).allocates,
			needs:      survey.PartNodes,
			find:       eachNode(withoutPodCIDR),
		},
		{
			name:       "duplicate-podcidr",
			looks:      "whether podCIDRs of two Nodes overlap: only one of them is routed",
			severities: []Severity{Error},
			remedy:     "delete one of the two Nodes and let it join again",
			concerns:   (*cluster).allocates,
			needs:      seesBook,
			fails:      bookFails,
			find:       bookWarnings(Error, ipam.Duplicate, ipam.DuplicateRecord),
		},
		{
			name:       "foreign-podcidr",
			looks:      "whether a Node has a podCIDR outside every pool, of another size than its pool's, or inside what is excluded",
			severities: []Severity{Warning},
			remedy:     "add a pool that covers it, or delete the Node and let it join again",
			concerns:   (*cluster).allocates,
			needs:      seesBook,
			fails:      bookFails,
			find:       bookWarnings(Warning, ipam.OutsidePools, ipam.WrongSize, ipam.Excluded),
		},
		{
			name:       "missing-family",
			looks:      "whether a Node has podCIDRs, and none of a family that the pools have",
			severities: []Severity{Warning},
			remedy:     "delete the Node and let it join again",
			concerns:   (*cluster).allocates,
			needs:      seesBook,
			fails:      bookFails,
			find:       bookWarnings(Warning, ipam.MissingFamily),
		},
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
func (x *cluster) unreadable() []Finding {
	var found []Finding
	for _, n := range x.Nodes {
		if _, err := kube.PodCIDRs(n); err != nil {
			found = append(found, Finding{Object: nodeObject(n), What: err.Error()})
		}
	}
	return found
}
