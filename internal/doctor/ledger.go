package doctor

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/ipam"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
)

const ledgerObject = "ConfigMap/kube-system/" + ipamcontroller.LedgerName

const (
	// overdue is how long after its quarantine a record may still exist.
	overdue = time.Hour
	// begun is how long the CCM may take to start the quarantine of a deleted Node: it checks
	// every few seconds, and confirms the deletion with the API server.
	begun = time.Minute
)

func ledgerChecks() []check {
	return []check{
		newCheck("ledger", Error, (*cluster).allocates, survey.PartNodes|survey.PartLedger,
			"restore all its ConfigMaps from one backup, or leave it to the cloud controller manager to rebuild it from the Nodes: see that one leads, and "+managerLogs, ledger),
		newCheck("ledger-leftover", Warning, (*cluster).allocates, seesBook|survey.PartEvents,
			"make sure that a cloud controller manager leads: it releases the prefixes of deleted Nodes; "+
				managerLogs, ledgerLeftover),
	}
}

func ledger(x *cluster) (found []Finding) {
	if !x.HasLedger() {
		if i := slices.IndexFunc(x.Nodes, kube.HasPodCIDRs); i >= 0 {
			return []Finding{about(ledgerObject,
				"there is no ledger, although Nodes have podCIDRs (%s): it was lost, and nothing is handed out before it is rebuilt", x.Nodes[i].Name)}
		}
		return nil
	}
	_, faults := x.Holdings()
	for _, fault := range faults {
		f := Finding{Object: "ConfigMap/kube-system/" + fault.ConfigMap}
		f.What = "it was lost, and nothing is handed out before the ledger is rebuilt: " + fault.String()
		if fault.Key != "" {
			f.What = "it can't be read, and nothing is handed out: " + fault.String()
			f.Remedy = "correct the entry as the message describes: kubectl -n kube-system edit configmap " +
				fault.ConfigMap
		}
		found = append(found, f)
	}
	return found
}

func ledgerLeftover(x *cluster) []Finding {
	holdings, _ := x.Holdings()
	var found []Finding
	for _, h := range holdings {
		gone := !slices.ContainsFunc(x.Nodes, func(n *corev1.Node) bool {
			return string(n.UID) == h.Node.UID
		})
		switch {
		case h.Released.IsZero() && gone && !x.justLeft(h.Node):
			found = append(found, leftover(h, "and the Node doesn't exist; its quarantine has not begun"))
		case !h.Released.IsZero() && x.age(h.Released) > x.Config.IPAM.Quarantine+overdue:
			why := "and its quarantine is not over yet, which takes " +
				duration.HumanDuration(x.Config.IPAM.Quarantine)
			f := leftover(h, fmt.Sprintf("whose Node is gone for %s, %s",
				duration.HumanDuration(x.age(h.Released)), why))
			found = append(found, f)
		}
	}
	return found
}

// justLeft reports whether a Node was deleted within begun: Kubernetes writes an Event about it.
func (x *cluster) justLeft(n ipam.Node) bool {
	return slices.ContainsFunc(x.Events, func(e *corev1.Event) bool {
		about := e.InvolvedObject
		return about.Kind == "Node" && string(about.UID) == n.UID && x.age(survey.EventTime(e)) < begun
	})
}

func leftover(h ipam.Holding, why string) Finding {
	return Finding{
		Object: ledgerObject,
		What: fmt.Sprintf("%s (UID %s) has a record for %s, %s", h.Node.Name, h.Node.UID,
			survey.Join(h.Prefixes, ", "), why),
	}
}
