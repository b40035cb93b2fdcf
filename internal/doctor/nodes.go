package doctor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// settled is how long a condition has to hold before it is trouble.
const settled = 2 * time.Minute

func nodeChecks() []check {
	return []check{
		{
			name:       "kubelet-cloud-provider",
			looks:      "whether kubelets run with `--cloud-provider=external`: a Node of any other has neither provider ID nor the taint that asks for one",
			severities: []Severity{Error},
			remedy:     "start the kubelet with --cloud-provider=external (kubeadm: nodeRegistration.kubeletExtraArgs), delete the Node, and restart the kubelet: it joins again",
			needs:      survey.PartNodes,
			find: eachNode(func(x *exam, n *corev1.Node) (string, string) {
				if since, late := x.waiting(n); late && n.Spec.ProviderID == "" && !uninitialized(n) {
					return fmt.Sprintf("it joined %s ago and has neither a provider ID nor the taint %s: its kubelet runs without --cloud-provider=external", long(since), cloudproviderapi.TaintExternalCloudProvider), ""
				}
				return "", ""
			}),
		},
		{
			name:       "node-uninitialized",
			looks:      "whether a Node waits longer than 5 minutes for its provider ID, or for the cloud controller manager to take the taint `node.cloudprovider.kubernetes.io/uninitialized`",
			severities: []Severity{Error},
			remedy:     "see why: kubectl describe node, Events ServerAmbiguous; name the server as the Node, or start the kubelet with --provider-id=hcloud://ID; " + managerLogs,
			needs:      survey.PartNodes,
			find: eachNode(func(x *exam, n *corev1.Node) (string, string) {
				if since, late := x.waiting(n); late && uninitialized(n) {
					return fmt.Sprintf("it joined %s ago and still has the taint %s; its provider ID is %q", long(since), cloudproviderapi.TaintExternalCloudProvider, n.Spec.ProviderID), ""
				}
				return "", ""
			}),
		},
		{
			name:       "node-server",
			looks:      "whether every Node's server exists in the project and is attached to the network",
			severities: []Severity{Error},
			remedy:     "attach the server to the network: hcloud server attach-to-network NAME --network NETWORK",
			given:      survey.PartConfig,
			concerns:   (*exam).inNetwork,
			needs:      seesRouting,
			find:       nodeServer,
		},
		{
			name:       "network-unavailable",
			looks:      "whether a Node has the condition NetworkUnavailable=True for longer than 2 minutes, and its reason",
			severities: []Severity{Error},
			remedy:     "see the reason: kubectl describe node; " + managerLogs,
			needs:      survey.PartNodes,
			find:       eachNode(networkUnavailable),
		},
		{
			name:       "peers-unreachable",
			looks:      "whether a node's agent has no route to other nodes' pods for longer than 2 minutes (condition `underlay.dev/PeersReachable`)",
			severities: []Severity{Error},
			remedy:     "put both nodes into one network segment, or see the agent: kubectl -n kube-system logs -l app.kubernetes.io/name=underlay-agent",
			needs:      survey.PartNodes,
			find: eachNode(func(x *exam, n *corev1.Node) (string, string) {
				if c := kube.Condition(n, agent.PeersReachable); c != nil && c.Status == corev1.ConditionFalse && x.age(c.LastTransitionTime.Time) > settled {
					return fmt.Sprintf("for %s: %s", long(x.age(c.LastTransitionTime.Time)), c.Message), ""
				}
				return "", ""
			}),
		},
	}
}

// eachNode asks about one Node after the other; no text is no finding, and no
// remedy the check's own.
func eachNode(ask func(*exam, *corev1.Node) (what, remedy string)) func(*exam) ([]Finding, string) {
	return func(x *exam) ([]Finding, string) {
		var found []Finding
		for _, n := range x.Nodes {
			if what, remedy := ask(x, n); what != "" {
				found = append(found, Finding{Object: nodeObject(n), What: what, Remedy: remedy})
			}
		}
		return found, ""
	}
}

func uninitialized(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

func nodeServer(x *exam) ([]Finding, string) {
	if x.routingErr != nil {
		return nil, x.routingErr.Error()
	}
	var found []Finding
	for _, n := range x.Nodes {
		missing, ok := x.routing.Gateways.Missing[n.Name]
		_, late := x.waiting(n)
		_, err := cloud.ParseProviderID(n.Spec.ProviderID)
		if !ok || !late || errors.Is(err, cloud.ErrOtherProvider) {
			continue
		}
		f := Finding{Object: nodeObject(n), What: missing.Reason}
		if !missing.Detached {
			f.Remedy = "see whether the server still exists; if it doesn't: kubectl delete node " + n.Name
		}
		found = append(found, f)
	}
	return found, ""
}

func networkUnavailable(x *exam, n *corev1.Node) (what, remedy string) {
	c := kube.Condition(n, corev1.NodeNetworkUnavailable)
	if c == nil || c.Status != corev1.ConditionTrue || x.age(c.LastTransitionTime.Time) <= settled {
		return "", ""
	}
	switch routes.Reason(c.Reason) {
	case routes.RouteTableFull:
		remedy = "have the network's limit of routes raised and set routes.limit in underlay-config, or remove routes that nothing uses: underlayctl routes"
	case routes.NotAttached:
		remedy = "attach the Node's server to the network: hcloud server attach-to-network NAME --network NETWORK"
	}
	return fmt.Sprintf("no pod runs on it for %s: %s: %s", long(x.age(c.LastTransitionTime.Time)), c.Reason, c.Message), remedy
}
