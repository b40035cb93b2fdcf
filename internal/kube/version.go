package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Newest remembers the latest state of Nodes that our own writes returned, so
// that a cache that lags behind them doesn't make us write the same again. It
// isn't safe for concurrent use.
type Newest struct{ byUID map[types.UID]*corev1.Node }

// NewNewest returns an empty memory.
func NewNewest() *Newest { return &Newest{byUID: map[types.UID]*corev1.Node{}} }

// Wrote keeps what a write returned.
func (n *Newest) Wrote(node *corev1.Node) { n.byUID[node.UID] = node }

// Of returns the newer of the cached node and what our last write returned, and
// forgets the latter once the cache has caught up.
func (n *Newest) Of(cached *corev1.Node) *corev1.Node {
	wrote, ok := n.byUID[cached.UID]
	if !ok {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, wrote.ResourceVersion)
	if err != nil || order >= 0 {
		delete(n.byUID, cached.UID)
		return cached
	}
	return wrote
}

// Forget drops a node that is gone.
func (n *Newest) Forget(uid types.UID) { delete(n.byUID, uid) }
