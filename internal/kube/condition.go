package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// ConditionAccepted on a Service says whether it gets all that it asks for: of a load balancer, or of
// addresses that nodes hold. Its class decides which controller writes it.
const ConditionAccepted = "underlay.dev/Accepted"

// AddressesMatch is the condition of a Node that is False while its kubelet was given an address
// that is not its machine's. A Node for which that never was so doesn't have it.
const AddressesMatch corev1.NodeConditionType = "underlay.dev/AddressesMatch"

// SetCondition writes one condition of a node's status and returns the node as
// the API server then has it. The patch carries the node's UID, so that a node
// that was deleted and joined again under its name isn't told the old one's
// news: that write is refused. Other conditions are not touched.
func SetCondition(ctx context.Context, client kubernetes.Interface, node *corev1.Node, c corev1.NodeCondition, now time.Time) (*corev1.Node, error) {
	c.LastHeartbeatTime = metav1.NewTime(now)
	c.LastTransitionTime = c.LastHeartbeatTime
	if old := Condition(node, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"status":   map[string]any{"conditions": []corev1.NodeCondition{c}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding condition %s of node %s: %w", c.Type, node.Name, err)
	}
	// Conditions merge by their type under the strategic merge patch.
	patched, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("setting condition %s of node %s to %s: %w", c.Type, node.Name, c.Status, err)
	}
	return patched, nil
}
