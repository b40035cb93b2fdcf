package doctor

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// conditionAge is how long a condition must persist before it is a problem.
const conditionAge = 2 * time.Minute

func nodeChecks() []check {
	return []check{
		newCheck("kubelet-cloud-provider", Error, nil, survey.PartNodes,
			"start the kubelet with --cloud-provider=external (kubeadm: nodeRegistration.kubeletExtraArgs), delete the Node, and restart the kubelet: it joins again",
			eachNode(func(x *cluster, n *corev1.Node) (string, string) {
				if since, late := x.waiting(n); late && n.Spec.ProviderID == "" && !survey.Uninitialized(n) {
					return fmt.Sprintf("it joined %s ago and has neither a provider ID nor the taint %s: its kubelet runs without --cloud-provider=external", duration.HumanDuration(since), cloudproviderapi.TaintExternalCloudProvider), ""
				}
				return "", ""
			})),
		newCheck("node-uninitialized", Error, nil, survey.PartNodes,
			"see why: kubectl describe node; condition underlay.dev/AddressesMatch: give the kubelet as --node-ip an address of its server; Event ServerAmbiguous: name the server as the Node, or start the kubelet with --provider-id=hcloud://ID (a dedicated server: hrobot://NUMBER); "+managerLogs,
			eachNode(func(x *cluster, n *corev1.Node) (string, string) {
				if since, late := x.waiting(n); late && survey.Uninitialized(n) {
					text := fmt.Sprintf("it joined %s ago and still has the taint %s; its provider ID is %q",
						duration.HumanDuration(since), cloudproviderapi.TaintExternalCloudProvider, n.Spec.ProviderID)
					if c := kube.Condition(n, kube.AddressesMatch); c != nil && c.Status == corev1.ConditionFalse {
						text += "; " + c.Message
					}
					return text, ""
				}
				return "", ""
			})),
		newCheck("node-server", Error, (*cluster).onCloud, survey.PartNodes|survey.PartServers,
			"attach the server to the network: hcloud server attach-to-network NAME --network NETWORK",
			nodeServer),
		newCheck("node-provider-id", Error, nil, survey.PartNodes,
			"delete the Node of the machine that is gone; let a cloned machine join with the ID of its own server (kubeadm reset there, then kubeadm join)", sameProviderID),
		newCheck("node-addresses", Warning, nil, survey.PartNodes,
			"find the program that wrote them: kubectl get node NAME --show-managed-fields -o yaml; of a machine with so many addresses give the kubelet those that nodes use as --node-ip",
			eachNode(func(_ *cluster, n *corev1.Node) (string, string) { return kube.TooMany(n), "" })),
		newCheck("network-unavailable", Error, nil, survey.PartNodes,
			"see the reason: kubectl describe node; "+managerLogs, eachNode(networkUnavailable)),
		newCheck("peers-unreachable", Error, nil, survey.PartNodes,
			"put both nodes into one network segment, or see the agent: "+agentLogs,
			eachNode(func(x *cluster, n *corev1.Node) (string, string) {
				if c := kube.Condition(n, agent.PeersReachable); c != nil &&
					c.Status == corev1.ConditionFalse && x.age(c.LastTransitionTime.Time) > conditionAge {
					return fmt.Sprintf("for %s: %s", duration.HumanDuration(x.age(c.LastTransitionTime.Time)),
						c.Message), ""
				}
				return "", ""
			})),
		newCheck("wireguard", Error, nil, survey.PartNodes|survey.PartConfig,
			"see the agent: "+agentLogs, wireGuard),
		newCheck("network-at-risk", Warning, nil, survey.PartNodes,
			"follow the message, on that node",
			eachNode(func(_ *cluster, n *corev1.Node) (string, string) {
				if c := kube.Condition(n, agent.PeersReachable); c != nil && c.Reason == agent.ReasonAtRisk {
					return c.Message, ""
				}
				return "", ""
			})),
	}
}

// eachNode returns a check of each Node. An empty text means no finding, an empty remedy the
// check's own remedy.
func eachNode(check func(*cluster, *corev1.Node) (what, remedy string)) func(*cluster) []Finding {
	return func(x *cluster) []Finding {
		var found []Finding
		for _, n := range x.Nodes {
			if what, remedy := check(x, n); what != "" {
				found = append(found, Finding{Object: nodeObject(n), What: what, Remedy: remedy})
			}
		}
		return found
	}
}

func sameProviderID(x *cluster) (found []Finding) {
	first := make(map[string]string, len(x.Nodes)) // Node name by provider ID
	for _, n := range x.Nodes {
		id := n.Spec.ProviderID
		switch other, shared := first[id]; {
		case id == "":
		case shared:
			found = append(found, about(nodeObject(n),
				"it has the same provider ID %s as Node %s: one server is routed for one Node", id, other))
		default:
			first[id] = n.Name
		}
	}
	return found
}

func nodeServer(x *cluster) []Finding {
	gateways, err := x.Gateways()
	if err != nil {
		return unseen(err.Error())
	}
	var found []Finding
	for _, n := range x.Nodes {
		missing, ok := gateways.Missing[n.Name]
		_, late := x.waiting(n)
		outside := missing.Detached &&
			(!x.inNetwork() || x.Tunnels() && kube.ReachOf(n) == routes.NoNetwork)
		if !ok || !late || n.Spec.ProviderID == "" || survey.OfOtherProvider(n) || outside {
			continue
		}
		if a, absent := x.absent[n.Name]; absent {
			found = append(found, outlives(n, a)...)
			continue
		}
		f := Finding{Object: nodeObject(n), What: missing.Reason}
		if !missing.Detached {
			f.Remedy = misnamed(n)
		}
		found = append(found, f)
	}
	return found
}

// outlives returns the finding about a Node without a server, unless it will be deleted anyway.
func outlives(n *corev1.Node, a survey.Absence) []Finding {
	f := Finding{Object: nodeObject(n), What: a.Text, Remedy: misnamed(n)}
	switch a.Outlook {
	case survey.Leaving:
		return nil
	case survey.Unsure:
		f.Severity, f.What = Info, notChecked+"whether the Node goes by itself: "+a.Text
		f.Remedy = "look again in a minute; if the Node is still Ready then: " + misnamed(n)
	case survey.Overdue:
		f.Remedy = "look again in a minute; if the Node is still there, see why the cloud controller manager doesn't delete it: " + managerLogs + "; or by hand: kubectl delete node " + n.Name
	}
	return []Finding{f}
}

func misnamed(n *corev1.Node) string {
	return "kubectl delete node " + n.Name + ", and restart the kubelet with --provider-id=hcloud://ID of its server (a dedicated server: hrobot://NUMBER), or without the flag: it joins again"
}

// wireGuard finds Nodes that tunnels can't connect.
func wireGuard(x *cluster) []Finding {
	owners := map[string][]string{} // by key
	for _, n := range x.Nodes {
		if w := kube.WireGuardOf(n); w != nil {
			for _, k := range w.Keys {
				owners[k.PublicKey] = append(owners[k.PublicKey], n.Name)
			}
		}
	}
	found := eachNode(func(x *cluster, n *corev1.Node) (what, remedy string) {
		reach, own := kube.ReachOf(n), kube.WireGuardOf(n)
		switch {
		case !x.Tunnels() && reach != "":
			return fmt.Sprintf("it has no route (annotation %s: %s), and tunnels are switched off",
					kube.ReachAnnotation, reach),
				"set wireguard: overflow in underlay-config; or, if a route can lead to it by now, kubectl annotate node " + n.Name + " " + kube.ReachAnnotation + "-"
		case !x.Tunnels():
			return "", ""
		case own == nil:
			if _, late := x.waiting(n); late {
				return "its agent has published no WireGuard key, so no tunnel connects it", ""
			}
			return "", ""
		}
		for _, k := range own.Keys {
			for _, other := range owners[k.PublicKey] {
				if other != n.Name {
					return "it has the WireGuard key of Node " + other +
							", so no tunnel connects either: one machine was cloned from the other",
						"on the clone delete /var/lib/underlay/wireguard-*.key, and restart its underlay-agent"
				}
			}
		}
		return "", ""
	})(x)
	for _, n := range x.Nodes {
		if by, known := clockError(n); x.Tunnels() && known && by.Abs() > clockTolerance {
			f := about(nodeObject(n), "its clock is %s %s the API server's: other nodes refuse WireGuard handshakes of a machine whose clock is set back", duration.HumanDuration(by.Abs()), map[bool]string{true: "ahead of", false: "behind"}[by > 0])
			f.Severity, f.Remedy = Warning, "set the clock by NTP on that machine, and see that it is right before underlay-agent starts"
			found = append(found, f)
		}
	}
	return found
}

// clockTolerance is a difference without an effect: WireGuard's handshakes are further apart.
const clockTolerance = 2 * time.Minute

// clockError returns how far a Node's clock is ahead of the API server's: its kubelet writes the
// time of a heartbeat, and the API server in managedFields the time of that write.
func clockError(n *corev1.Node) (by time.Duration, known bool) {
	ready := kube.Condition(n, corev1.NodeReady)
	for _, e := range n.ManagedFields {
		var fields struct {
			Status struct {
				Conditions map[string]map[string]any `json:"f:conditions"`
			} `json:"f:status"`
		}
		if ready == nil || e.Time == nil || e.FieldsV1 == nil ||
			json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, written := fields.Status.Conditions[`k:{"type":"Ready"}`]["f:lastHeartbeatTime"]; written {
			return ready.LastHeartbeatTime.Sub(e.Time.Time), true
		}
	}
	return 0, false
}

func networkUnavailable(x *cluster, n *corev1.Node) (what, remedy string) {
	c := kube.Condition(n, corev1.NodeNetworkUnavailable)
	if _, absent := x.absent[n.Name]; absent {
		return "", "" // node-server reports the cause
	}
	if c == nil || c.Status != corev1.ConditionTrue ||
		x.age(c.LastTransitionTime.Time) <= conditionAge {
		return "", ""
	}
	switch routes.Reason(c.Reason) {
	case routes.RouteTableFull:
		remedy = "have the network's limit of routes raised and set routes.limit in underlay-config, or remove routes that nothing uses: underlayctl routes"
	case routes.NotAttached:
		remedy = "attach the Node's server to the network: hcloud server attach-to-network NAME --network NETWORK"
		if _, err := kube.ParseDedicatedID(n.Spec.ProviderID); err == nil {
			remedy = "have a pool with source: vswitch (key pools of underlay-config) select the Node by its labels, delete the Node and let it join again; or use an overlay: docs/how-to/dedicated-servers.md"
		}
	case routes.NoTunnel:
		remedy = "see the Node's condition underlay.dev/PeersReachable: mostly the UDP port of wireguardPort (51820) is closed on a machine, or underlay-agent there has another configuration"
	case routes.NotInVSwitch:
		remedy = "correct the kubelet's --node-ip or the Node's labels, as vswitch-node describes"
	}
	return fmt.Sprintf("no pod runs on it for %s: %s: %s",
		duration.HumanDuration(x.age(c.LastTransitionTime.Time)), c.Reason, c.Message), remedy
}
