package doctor

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes/agent"
)

const agentLogs = "kubectl -n " + here + " logs -l app.kubernetes.io/name=underlay-agent"

func (x *cluster) agents() *appsv1.DaemonSet {
	i := slices.IndexFunc(x.DaemonSets, func(d *appsv1.DaemonSet) bool {
		return d.Name == agentName || d.Labels[nameLabel] == agentName
	})
	if i < 0 {
		return nil
	}
	return x.DaemonSets[i]
}

// networkOfOthers reports whether another CNI plugin provides the pod network: a Node is Ready,
// which requires a pod network, but no Node has the condition that agents set and never remove.
func (x *cluster) networkOfOthers() bool {
	return slices.ContainsFunc(x.Nodes, kube.Ready) && !slices.ContainsFunc(x.Nodes, func(n *corev1.Node) bool {
		return kube.Condition(n, agent.PeersReachable) != nil
	})
}

// agentOn reports whether an agent runs on a node, and whether it is ready.
func (x *cluster) agentOn(node string) (runs, ready bool) {
	for _, p := range x.Pods {
		if p.Spec.NodeName == node && (p.Labels[nameLabel] == agentName || strings.HasPrefix(p.Name, agentName+"-")) {
			runs = true
			ready = ready || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
		}
	}
	return runs, ready
}

func agentReady(x *cluster) []Finding {
	d := x.agents()
	if d == nil {
		f := Finding{Severity: Warning, What: "there is no DaemonSet underlay-agent in " + x.Namespace + ": nothing makes the pod network on the nodes, unless another CNI plugin does", Remedy: "kubectl apply -f deploy/agent"}
		if families := x.Config.Families; families.IPv4 == config.RoutedByNodes || families.IPv6 == config.RoutedByNodes {
			f.Severity, f.What = Error, "there is no DaemonSet underlay-agent in "+x.Namespace+", and the nodes are to route pods' packets by themselves"
		} else if x.networkOfOthers() {
			return nil
		}
		return []Finding{f}
	}
	object := "DaemonSet/" + d.Namespace + "/" + d.Name
	if d.Status.DesiredNumberScheduled == 0 && len(x.Nodes) > 0 {
		return []Finding{{Object: object, What: "it is to run on no node: its nodeSelector or affinity fits none"}}
	}
	if d.Status.NumberReady >= d.Status.DesiredNumberScheduled {
		return nil
	}
	var absent, unready []string
	for _, n := range x.Nodes {
		_, old := x.waiting(n)
		_, serverless := x.absent[n.Name]
		switch runs, ready := x.agentOn(n.Name); {
		case ready || !old || serverless:
		case runs:
			unready = append(unready, n.Name)
		default:
			absent = append(absent, n.Name)
		}
	}
	if len(absent)+len(unready) == 0 {
		return nil // only Nodes that just joined lack a ready agent
	}
	what := fmt.Sprintf("%d of %d agents are ready", d.Status.NumberReady, d.Status.DesiredNumberScheduled)
	if len(unready) > 0 {
		what += "; not ready on " + few(unready)
	}
	if len(absent) > 0 {
		what += "; not running on " + few(absent)
	}
	return []Finding{{Object: object, What: what}}
}
