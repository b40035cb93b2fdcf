package kube

import (
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Newest caches the objects that our own writes returned, so that a lagging informer cache
// doesn't cause the same write or event again. It is safe for concurrent use.
type Newest[T metav1.Object] struct {
	mu    sync.Mutex
	byUID map[types.UID]T
}

// NewNewest returns an empty cache.
func NewNewest[T metav1.Object]() *Newest[T] { return &Newest[T]{byUID: map[types.UID]T{}} }

// Wrote stores the object that a write returned. It drops a deleted object without finalizers:
// the informer may have reported its deletion already, so no later event would remove it.
func (n *Newest[T]) Wrote(object T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		delete(n.byUID, object.GetUID())
		return
	}
	n.byUID[object.GetUID()] = object
}

// Of returns the newer of the cached object and our last write, and drops the latter if not newer.
func (n *Newest[T]) Of(cached T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	wrote, ok := n.byUID[cached.GetUID()]
	if !ok {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(),
		wrote.GetResourceVersion())
	if err != nil || order >= 0 {
		delete(n.byUID, cached.GetUID())
		return cached
	}
	return wrote
}

// Prune drops the objects that the informer's cache does not have any more; get returns the cached
// object of the same name. It is called from time to time instead of at each deletion, because a
// write that ends after the deletion would store the object again.
func (n *Newest[T]) Prune(get func(T) (T, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.byUID, func(uid types.UID, object T) bool {
		cached, err := get(object)
		return err != nil || cached.GetUID() != uid
	})
}
