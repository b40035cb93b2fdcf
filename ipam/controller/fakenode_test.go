package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// patchPodCIDRs applies a PATCH of podCIDRs as the API server does.
func (f *fakeAPI) patchPodCIDRs(req *http.Request, c call, what fault) (any, error) {
	var patch struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
		Spec struct {
			PodCIDR  string   `json:"podCIDR"`
			PodCIDRs []string `json:"podCIDRs"`
		} `json:"spec"`
	}
	strict := json.NewDecoder(bytes.NewReader([]byte(c.body)))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&patch); err != nil || patch.Metadata.UID == "" || len(patch.Spec.PodCIDRs) == 0 {
		panic(fmt.Sprintf("fake: the controller must not send this patch: %s", c.body))
	}
	old := f.node(c.name)
	if old == nil {
		return nil, apierrors.NewNotFound(nodeResource, c.name)
	}
	if old.UID != patch.Metadata.UID {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, c.name, nil)
	}
	// A strategic merge patch adds to the list.
	for _, had := range old.Spec.PodCIDRs {
		if !slices.Contains(patch.Spec.PodCIDRs, had) {
			patch.Spec.PodCIDRs = append(patch.Spec.PodCIDRs, had)
		}
	}
	if patch.Spec.PodCIDR != patch.Spec.PodCIDRs[0] || what.cutDown {
		patch.Spec.PodCIDRs = []string{patch.Spec.PodCIDR}
	}
	if len(old.Spec.PodCIDRs) > 0 {
		if !slices.Equal(old.Spec.PodCIDRs, patch.Spec.PodCIDRs) {
			return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, c.name, nil)
		}
		return old, nil
	}
	node := old.DeepCopy()
	node.Spec.PodCIDR, node.Spec.PodCIDRs = patch.Spec.PodCIDR, patch.Spec.PodCIDRs
	managePodCIDRs(node, req.URL.Query().Get("fieldManager"))
	f.writes[node.UID]++
	f.byUs[node.UID] = true
	f.invariants.handedOut(node)
	f.putNode(watch.Modified, node)
	return node, nil
}

// patchStatus merges conditions by their type.
func (f *fakeAPI) patchStatus(c call) (any, error) {
	var patch struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []corev1.NodeCondition `json:"conditions"`
		} `json:"status"`
	}
	strict := json.NewDecoder(bytes.NewReader([]byte(c.body)))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&patch); err != nil || patch.Metadata.UID == "" {
		panic(fmt.Sprintf("fake: the controller must not send this patch of a status: %s", c.body))
	}
	old := f.node(c.name)
	if old == nil {
		return nil, apierrors.NewNotFound(nodeResource, c.name)
	}
	if old.UID != patch.Metadata.UID {
		return nil, apierrors.NewConflict(nodeResource, c.name, fmt.Errorf("has UID %s", old.UID))
	}
	node := old.DeepCopy()
	for _, condition := range patch.Status.Conditions {
		at := slices.IndexFunc(node.Status.Conditions, func(o corev1.NodeCondition) bool {
			return o.Type == condition.Type
		})
		if at < 0 {
			node.Status.Conditions = append(node.Status.Conditions, condition)
		} else {
			node.Status.Conditions[at] = condition
		}
	}
	f.putNode(watch.Modified, node)
	return node, nil
}

// managePodCIDRs records in a Node's managedFields the manager that sets its podCIDRs now.
func managePodCIDRs(node *corev1.Node, manager string) {
	if manager == "" {
		panic("fake: a write of podCIDRs has to carry a field manager")
	}
	values := ""
	for _, text := range node.Spec.PodCIDRs {
		values += fmt.Sprintf(`,"v:\"%s\"":{}`, text)
	}
	now := metav1.Now()
	node.ManagedFields = append(node.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(`{"f:spec":{"f:podCIDR":{},"f:podCIDRs":{".":{}` + values + `}}}`),
	})
}

// setBy gives a Node podCIDRs from another manager.
func setBy(manager string, podCIDRs ...string) shape {
	return func(node *corev1.Node) {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = podCIDRs[0], podCIDRs
		managePodCIDRs(node, manager)
	}
}

func setPodCIDRs(texts ...string) shape {
	return func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = texts[0], texts }
}

func beingDeleted(n *corev1.Node) {
	now := metav1.Now()
	n.DeletionTimestamp = &now
}

func onMachine(providerID string) shape {
	return func(n *corev1.Node) { n.Spec.ProviderID = providerID }
}

func withLabel(key, value string) shape {
	return func(n *corev1.Node) { n.Labels = map[string]string{key: value} }
}

func withAddress(addresses ...string) shape {
	return func(n *corev1.Node) {
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
				Type: corev1.NodeInternalIP, Address: a,
			})
		}
	}
}
