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
	// Namespace contains only the directory. Other controllers may add ConfigMaps to it.
	Namespace = "underlay-nodes"
	// Complete names the ConfigMap that is written once every Node has its entry. It sorts first,
	// so that a deletion of all deletes it first. A Node of this name is not published.
	Complete = "0-complete"
	key      = "node"
	// label marks the directory's ConfigMaps: kube-root-ca.crt is in every namespace too.
	label = "underlay.dev/directory"
)

// entryOf returns the entry of a Node with few addresses, since a kubelet may report any number.
func entryOf(node *corev1.Node) *kube.Node {
	bounded := func(all []netip.Addr) []netip.Addr { return all[:min(len(all), kube.MostReported)] }
	e := kube.NodeOf(node)
	e.InternalIPs, e.ExternalIPs = bounded(e.InternalIPs), bounded(e.ExternalIPs)
	return e
}

// Object returns the ConfigMap of a Node, which owns it in case no publisher runs.
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

func newInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	labelled := func(o *metav1.ListOptions) { o.LabelSelector = label }
	return coreinformers.NewFilteredConfigMapInformer(client, Namespace, 0, nil, labelled)
}

func same(live, want *corev1.ConfigMap) bool {
	return maps.Equal(live.Data, want.Data) && slices.Equal(live.OwnerReferences, want.OwnerReferences)
}

type cached struct {
	kube.Node
	version string
}

// GetObjectMeta returns the metadata that an informer uses: it identifies the entry by its key,
// and ignores an update without a new resource version.
func (c *cached) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: c.Name, Namespace: Namespace, ResourceVersion: c.version}
}

// compacted returns the entry of a ConfigMap; if it is unreadable, an entry with only the name.
func compacted(stored *corev1.ConfigMap) *cached {
	var n kube.Node
	if err := json.Unmarshal([]byte(stored.Data[key]), &n); err != nil {
		n = kube.Node{}
	}
	n.Name = stored.Name
	return &cached{n, stored.ResourceVersion}
}

// compact is the informer's transform of ConfigMaps. It returns transformed objects unchanged.
func compact(obj any) (any, error) {
	if stored, ok := obj.(*corev1.ConfigMap); ok {
		return compacted(stored), nil
	}
	return obj, nil
}
