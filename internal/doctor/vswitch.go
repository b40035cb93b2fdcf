package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/vswitch"
	"github.com/underlay-ccm/underlay/routes"
)

func vSwitchChecks() []check {
	return []check{
		newCheck("vswitch-network", Error, (*cluster).coupled, survey.PartConfig|survey.PartNetwork,
			"couple the subnet with the vSwitch, and expose the routes: hcloud network expose-routes-to-vswitch NETWORK", vSwitchNetwork),
		newCheck("vswitch-node", Error,
			func(x *cluster) bool { return x.coupled() && len(x.VSwitch().Ranges) > 0 }, hasRouting,
			"correct the Node's labels, delete the Node and let it join again: podCIDRs can't be changed",
			vSwitchNodes),
		newCheck("vswitch-member", Error,
			func(x *cluster) bool { return x.coupled() && len(x.VSwitch().Ranges) > 0 },
			survey.PartConfig|survey.PartNodes,
			"remove the server from the vSwitch at Robot and add it again", eachNode(vSwitchMember)),
	}
}

// vSwitchMember relies on the CCM's condition; doctor sends no requests to Robot.
func vSwitchMember(x *cluster, n *corev1.Node) (what, remedy string) {
	c := kube.Condition(n, vswitch.MemberCondition)
	podCIDRs, _ := kube.PodCIDRs(n)
	if c == nil || c.Status != corev1.ConditionFalse ||
		!slices.ContainsFunc(podCIDRs, x.VSwitch().Holds) {
		return "", ""
	}
	problem, remedy, _ := strings.Cut(c.Message, "; ")
	return fmt.Sprintf("for %s: %s: %s", duration.HumanDuration(x.age(c.LastTransitionTime.Time)),
		c.Reason, problem), remedy
}

// coupled reports whether the network should be coupled with a vSwitch.
func (x *cluster) coupled() bool { return x.inNetwork() && x.VSwitch().Subnet.IsValid() }

func vSwitchNetwork(x *cluster) (found []Finding) {
	for _, f := range x.VSwitch().Check(x.Network.Coupling) {
		found = append(found, ofRoutes(f))
	}
	return found
}

func vSwitchNodes(x *cluster) []Finding {
	statuses := x.routing.NodeStatuses()
	return eachNode(func(x *cluster, n *corev1.Node) (what, remedy string) {
		if _, late := x.waiting(n); !late {
			return "", ""
		}
		if v := statuses[n.Name]; v.Reason == routes.NotInVSwitch {
			what, remedy, _ = strings.Cut(v.Message, "; ")
			return what, remedy
		}
		prefixes, _ := kube.PodCIDRs(n)
		selected := slices.ContainsFunc(x.Config.IPAM.Pools, func(p config.Pool) bool {
			return p.VSwitch && p.Selector.Matches(labels.Set(n.Labels))
		})
		_, notCloud := kube.ParseProviderID(n.Spec.ProviderID)
		_, notDedicated := kube.ParseDedicatedID(n.Spec.ProviderID)
		switch {
		case slices.ContainsFunc(prefixes, x.VSwitch().Holds):
		case selected && notCloud == nil:
			return "a pool with source: vswitch selects it, and it is a server of the cloud (" +
				n.Spec.ProviderID + "), where the gateway of the vSwitch's subnet doesn't find pods", ""
		case !selected && notDedicated == nil && len(prefixes) > 0:
			return fmt.Sprintf("it is a dedicated server (%s), and no pool with source: vswitch selects it: no route of the network can lead to its podCIDRs %v", n.Spec.ProviderID, prefixes), ""
		}
		return "", ""
	})(x)
}
