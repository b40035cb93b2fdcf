package directory

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
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

// entryOf is what the directory has of a Node. Addresses of which the Node reports too many are
// left out: its kubelet may report any number.
func entryOf(node *corev1.Node) *kube.Node {
	bounded := func(all []netip.Addr) []netip.Addr { return all[:min(len(all), kube.MostReported)] }
	e := kube.NodeOf(node)
	e.InternalIPs, e.ExternalIPs = bounded(e.InternalIPs), bounded(e.ExternalIPs)
	return e
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

// newInformer makes an informer of the directory's ConfigMaps.
func newInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	labelled := func(o *metav1.ListOptions) { o.LabelSelector = label }
	return coreinformers.NewFilteredConfigMapInformer(client, Namespace, 0, nil, labelled)
}

// same reports whether a stored ConfigMap is as it should be.
func same(live, want *corev1.ConfigMap) bool {
	return maps.Equal(live.Data, want.Data) && slices.Equal(live.OwnerReferences, want.OwnerReferences)
}

// read is the entry in a ConfigMap; of what can't be read, one without anything but the name.
func read(stored *corev1.ConfigMap) kube.Node {
	var n kube.Node
	if err := json.Unmarshal([]byte(stored.Data[key]), &n); err != nil {
		n = kube.Node{}
	}
	n.Name = stored.Name
	return n
}

// cached is an entry in an informer's cache.
type cached struct {
	kube.Node
	version string
}

// GetObjectMeta returns what an informer uses: it finds the entry by its key, and takes an update
// without another version for a repetition.
func (c *cached) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: c.Name, Namespace: Namespace, ResourceVersion: c.version}
}

func compacted(stored *corev1.ConfigMap) *cached {
	return &cached{read(stored), stored.ResourceVersion}
}

// compact is an informer's transform of ConfigMaps. It leaves alone what it has made before.
func compact(obj any) (any, error) {
	if stored, ok := obj.(*corev1.ConfigMap); ok {
		return compacted(stored), nil
	}
	return obj, nil
}
