package kube

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Newest remembers the latest state of objects that our own writes returned, so
// that a cache that lags behind them doesn't make us write or announce the same
// again. It is safe for concurrent use.
type Newest[T metav1.Object] struct {
	mu    sync.Mutex
	byUID map[types.UID]T
}

// NewNewest returns an empty memory.
func NewNewest[T metav1.Object]() *Newest[T] { return &Newest[T]{byUID: map[types.UID]T{}} }

// Wrote keeps what a write returned. A write that took the last finalizer from
// an object on its way out returns one that is gone: the cache may have told of
// that already, and nobody would ever drop it.
func (n *Newest[T]) Wrote(object T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		delete(n.byUID, object.GetUID())
		return
	}
	n.byUID[object.GetUID()] = object
}

// Of returns the newer of the cached object and what our last write returned,
// and forgets the latter once the cache has caught up.
func (n *Newest[T]) Of(cached T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	wrote, ok := n.byUID[cached.GetUID()]
	if !ok {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), wrote.GetResourceVersion())
	if err != nil || order >= 0 {
		delete(n.byUID, cached.GetUID())
		return cached
	}
	return wrote
}

// Forget drops an object that is gone.
func (n *Newest[T]) Forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byUID, uid)
}
