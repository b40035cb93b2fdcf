package converge

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// toBeDeletedTaint is set by the cluster autoscaler before it removes a node.
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

const providerPrefix = "hcloud://"

// Target returns the cloud server behind a node, and whether the node can receive traffic. Readiness is not
// asked for, as in upstream's controller: health checks judge nodes faster and more finely.
func Target(node *corev1.Node) (server int64, ok bool) {
	if !node.DeletionTimestamp.IsZero() || excluded(node) || leaving(node) {
		return 0, false
	}
	return serverID(node.Spec.ProviderID)
}

// serverID reads the provider ID of a cloud server. Dedicated servers have others, and the load balancer
// cannot take them as server targets.
func serverID(providerID string) (int64, bool) {
	text, ok := strings.CutPrefix(providerID, providerPrefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0
}

// excluded reads the label that keeps a node away from load balancers. Any value excludes but one that says
// false.
func excluded(node *corev1.Node) bool {
	value, set := node.Labels[corev1.LabelNodeExcludeBalancers]
	if !set {
		return false
	}
	exclude, err := strconv.ParseBool(value)
	return err != nil || exclude
}

func leaving(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == toBeDeletedTaint {
			return true
		}
	}
	return false
}

// Endpoints are the names of the nodes on which a Service has endpoints that serve.
type Endpoints struct {
	// Known is false while nobody has looked.
	Known bool
	Nodes map[string]bool
}

// servers are the targets among the nodes that a selector matches, and which of them have endpoints.
func servers(nodes []*corev1.Node, selector labels.Selector, endpoints Endpoints) (ids, serving []int64) {
	for _, node := range nodes {
		id, ok := Target(node)
		if !ok || !selector.Matches(labels.Set(node.Labels)) {
			continue
		}
		ids = append(ids, id)
		if endpoints.Nodes[node.Name] {
			serving = append(serving, id)
		}
	}
	return ids, serving
}
