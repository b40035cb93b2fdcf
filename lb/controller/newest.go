package controller

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// newest remembers what our own writes returned, until the cache has it too. Without it, whoever looks at a
// Service right after a write would write and announce the same again.
type newest struct {
	mu     sync.Mutex
	byName map[cache.ObjectName]*corev1.Service
}

func newNewest() *newest { return &newest{byName: make(map[cache.ObjectName]*corev1.Service)} }

func (n *newest) wrote(svc *corev1.Service) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byName[nameOf(svc)] = svc
}

func (n *newest) forget(name cache.ObjectName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byName, name)
}

// of returns the newer of a cached Service and what our last write to it returned.
func (n *newest) of(cached *corev1.Service) *corev1.Service {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := nameOf(cached)
	wrote, ok := n.byName[name]
	if !ok {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, wrote.ResourceVersion)
	if err != nil || order >= 0 || cached.UID != wrote.UID {
		delete(n.byName, name)
		return cached
	}
	return wrote
}
