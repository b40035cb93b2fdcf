package doctor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/lb"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
)

func serviceChecks() []check {
	return []check{
		newCheck("service-refused", Error, (*cluster).balances, survey.PartServices|survey.PartNodes|survey.PartEndpointSlices,
			"correct the Service as the text says; see docs/reference/annotations.md", serviceRefused),
		newCheck("service-family", Warning, (*cluster).allocates, survey.PartServices,
			"add a pool of that family (key pools of underlay-config), or take it from spec.ipFamilies of the Service", serviceFamily),
	}
}

func accepted(svc *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(svc.Status.Conditions, lbcontroller.ConditionAccepted)
}

func serviceRefused(x *cluster) (found []Finding) {
	endpoints := x.EndpointsByService()
	reason, blind := "", false
	if x.inNetwork() {
		reason, blind = x.blind(survey.PartNetwork)
	}
	for _, svc := range x.Services {
		if !svc.DeletionTimestamp.IsZero() || !lbcontroller.Ours(svc, x.Config.LoadBalancers.Classless) {
			continue
		}
		c := accepted(svc)
		switch {
		case c != nil && c.Status == metav1.ConditionFalse && c.Reason == lb.ReasonNotOwned:
			// A check of its own.
		case c != nil && c.Status == metav1.ConditionFalse:
			found = append(found, Finding{Object: serviceObject(svc), What: c.Reason + ": " + c.Message})
		case c == nil && x.age(svc.CreationTimestamp.Time) > survey.GracePeriod:
			found = append(found, Finding{
				Object: serviceObject(svc), What: fmt.Sprintf("it was created %s ago, and no cloud controller manager has looked at it", long(x.age(svc.CreationTimestamp.Time))),
				Remedy: "see that the cloud controller manager leads (checks cloud-controller and leader): " + managerLogs,
			})
		case !blind:
			for _, note := range x.NotesOf(svc, endpoints[survey.NameOf(svc)]) {
				found = append(found, Finding{Severity: graded(note.Grade), Object: serviceObject(svc), What: note.Reason + ": " + note.String()})
			}
		}
	}
	if blind {
		found = append(found, unseen(reason)...)
	}
	return found
}

func graded(g lb.Grade) Severity {
	if g == lb.Error {
		return Error
	}
	return Warning
}

func serviceFamily(x *cluster) []Finding {
	pools := map[corev1.IPFamily]bool{}
	for _, p := range x.Pools() {
		if p.Own || p.Prefix.Addr().Is6() {
			pools[corev1.IPv6Protocol] = true
		} else {
			pools[corev1.IPv4Protocol] = true
		}
	}
	var found []Finding
	for _, svc := range x.Services {
		for _, family := range svc.Spec.IPFamilies {
			if !pools[family] && svc.Spec.ClusterIP != corev1.ClusterIPNone {
				found = append(found, about(serviceObject(svc),
					"it asks for %s (ipFamilies %v), and no pool hands out podCIDRs of that family: it has no endpoints there", family, svc.Spec.IPFamilies))
			}
		}
	}
	return found
}
