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

// ConditionAccepted is the condition of a Service that reports whether all of its requests for a
// load balancer, or for addresses held by nodes, are granted. The class of the Service
// determines which controller writes it.
const ConditionAccepted = "underlay.dev/Accepted"

// AddressesMatch is the condition of a Node that is False while its kubelet has an address that
// is not its machine's. A Node without such an address in its past doesn't have the condition.
const AddressesMatch corev1.NodeConditionType = "underlay.dev/AddressesMatch"

// SetCondition writes a condition of a node's status and returns the node from the API server's
// response. The patch contains the UID, so that the API server refuses it for a node that was
// recreated under the same name. Other conditions are not changed.
func SetCondition(
	ctx context.Context, client kubernetes.Interface, node *corev1.Node, c corev1.NodeCondition,
	now time.Time,
) (*corev1.Node, error) {
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
	// The strategic merge patch merges conditions by their type.
	patched, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return nil,
			fmt.Errorf("setting condition %s of node %s to %s: %w", c.Type, node.Name, c.Status, err)
	}
	return patched, nil
}
