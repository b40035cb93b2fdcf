package doctor

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
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
	return slices.ContainsFunc(x.Nodes, kube.Ready) &&
		!slices.ContainsFunc(x.Nodes, func(n *corev1.Node) bool {
			return kube.Condition(n, agent.PeersReachable) != nil
		})
}

// agentReady reports whether a ready agent runs on a node.
func (x *cluster) agentReady(node string) bool {
	return slices.ContainsFunc(x.Pods, func(p *corev1.Pod) bool {
		own := p.Labels[nameLabel] == agentName || strings.HasPrefix(p.Name, agentName+"-")
		return own && p.Spec.NodeName == node &&
			slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
	})
}

func agentReady(x *cluster) []Finding {
	d := x.agents()
	if d == nil {
		f := Finding{
			Severity: Warning,
			What: "there is no DaemonSet underlay-agent in " + x.Namespace +
				": nothing makes the pod network on the nodes, unless another CNI plugin does",
			Remedy: "kubectl apply -f deploy/agent",
		}
		if x.Config.Families.Any(routes.ByNodes) {
			f.Severity, f.What = Error, "there is no DaemonSet underlay-agent in "+x.Namespace+
				", and the nodes are to route pods' packets by themselves"
		} else if x.networkOfOthers() {
			return nil
		}
		return []Finding{f}
	}
	object := "DaemonSet/" + d.Namespace + "/" + d.Name
	if d.Status.DesiredNumberScheduled == 0 && len(x.Nodes) > 0 {
		return []Finding{
			{Object: object, What: "it is to run on no node: its nodeSelector or affinity fits none"},
		}
	}
	if d.Status.NumberReady >= d.Status.DesiredNumberScheduled {
		return nil
	}
	var without []string
	for _, n := range x.Nodes {
		_, old := x.waiting(n)
		_, serverless := x.absent[n.Name]
		if old && !serverless && !x.agentReady(n.Name) {
			without = append(without, n.Name)
		}
	}
	if len(without) == 0 {
		return nil // only Nodes that just joined lack a ready agent
	}
	return []Finding{about(object, "%d of %d agents are ready; none is on %s",
		d.Status.NumberReady, d.Status.DesiredNumberScheduled, few(without))}
}
