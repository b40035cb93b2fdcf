package directory

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	// Namespace is made for the directory. Other controllers may add ConfigMaps to it.
	Namespace = "underlay-nodes"
	// Complete is the name of the ConfigMap that is written when every Node has its entry. It comes
	// first in the order of names, but for a few, so that it is deleted first where everything is. A
	// Node of this name is not published.
	Complete = "0-complete"
	// key is that of an entry in its ConfigMap.
	key = "node"
	// label is on every ConfigMap of the directory: kube-controller-manager adds kube-root-ca.crt to
	// every namespace.
	label = "underlay.dev/directory"
)

// entry is what the directory has of a Node.
type entry struct {
	UID          types.UID      `json:"uid"`
	Created      metav1.Time    `json:"created"`
	PodCIDRs     []netip.Prefix `json:"podCIDRs,omitempty"`
	InternalIPs  []netip.Addr   `json:"internalIPs,omitempty"`
	ExternalIPs  []netip.Addr   `json:"externalIPs,omitempty"`
	ControlPlane bool           `json:"controlPlane,omitempty"`
	Ready        bool           `json:"ready,omitempty"`
}

// entryOf reads a Node. What can't be read of it is left out, and so are addresses of which it
// reports too many: its kubelet may report any number.
func entryOf(node *corev1.Node) entry {
	podCIDRs, _ := kube.PodCIDRs(node)
	bounded := func(all []netip.Addr) []netip.Addr { return all[:min(len(all), kube.MostReported)] }
	return entry{
		UID: node.UID, Created: node.CreationTimestamp, PodCIDRs: podCIDRs,
		InternalIPs: bounded(kube.InternalIPs(node)), ExternalIPs: bounded(kube.ExternalIPs(node)),
		ControlPlane: kube.ControlPlane(node), Ready: kube.Ready(node),
	}
}

func equal(a, b entry) bool {
	return a.UID == b.UID && slices.Equal(a.PodCIDRs, b.PodCIDRs) &&
		slices.Equal(a.InternalIPs, b.InternalIPs) && slices.Equal(a.ExternalIPs, b.ExternalIPs) &&
		a.ControlPlane == b.ControlPlane && a.Ready == b.Ready
}

// Object is the ConfigMap of a Node. The API server deletes it with its owner where the publisher
// is not there to do it.
func Object(node *corev1.Node) (*corev1.ConfigMap, error) {
	text, err := json.Marshal(entryOf(node))
	if err != nil {
		return nil, fmt.Errorf("writing the directory's entry of Node %s: %w", node.Name, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, Namespace: Namespace, Labels: labelled(),
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			},
		},
		Data: map[string]string{key: string(text)},
	}, nil
}

func labelled() map[string]string { return map[string]string{label: ""} }

// factory makes informers of the directory's ConfigMaps.
func factory(
	client kubernetes.Interface, options ...informers.SharedInformerOption,
) informers.SharedInformerFactory {
	labelled := func(o *metav1.ListOptions) { o.LabelSelector = label }
	options = append(options, informers.WithNamespace(Namespace), informers.WithTweakListOptions(labelled))
	return informers.NewSharedInformerFactoryWithOptions(client, 0, options...)
}

// same reports whether a stored ConfigMap is as it should be.
func same(live, want *corev1.ConfigMap) bool {
	return maps.Equal(live.Data, want.Data) && slices.Equal(live.OwnerReferences, want.OwnerReferences)
}

// read is the entry in a ConfigMap; of what can't be read, the zero entry.
func read(stored *corev1.ConfigMap) entry {
	var e entry
	if err := json.Unmarshal([]byte(stored.Data[key]), &e); err != nil {
		return entry{}
	}
	return e
}

// transform makes an informer's transform: of an entry it makes the Node, with the ConfigMap's
// namespace, which is part of the informer's keys. It leaves alone what it has made before.
func transform() cache.TransformFunc {
	// Thousands of Nodes share these.
	controlPlane := map[string]string{kube.ControlPlaneLabel: ""}
	ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return func(obj any) (any, error) {
		stored, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return obj, nil
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: stored.Name, Namespace: Namespace, ResourceVersion: stored.ResourceVersion,
		}}
		e := read(stored)
		node.UID, node.CreationTimestamp = e.UID, e.Created
		for _, p := range e.PodCIDRs {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
		}
		if len(node.Spec.PodCIDRs) > 0 {
			node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		}
		node.Status.Addresses = append(addressesOf(corev1.NodeInternalIP, e.InternalIPs),
			addressesOf(corev1.NodeExternalIP, e.ExternalIPs)...)
		if e.ControlPlane {
			node.Labels = controlPlane
		}
		if e.Ready {
			node.Status.Conditions = ready
		}
		return node, nil
	}
}

func addressesOf(kind corev1.NodeAddressType, addrs []netip.Addr) []corev1.NodeAddress {
	all := make([]corev1.NodeAddress, 0, len(addrs)+1)
	for _, a := range addrs {
		all = append(all, corev1.NodeAddress{Type: kind, Address: a.String()})
	}
	return all
}
