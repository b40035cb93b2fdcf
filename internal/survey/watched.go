package survey

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// watchedParts are those whose objects change often and that can be watched.
const watchedParts = PartNodes | PartServices | PartEndpointSlices | PartEvents

// breakage is why a part is not watched just now.
type breakage struct {
	err error
	// version is up to where it was watched: any other says that it is watched again.
	version string
}

// prepare makes what watches, for those parts that can be seen.
func (w *Watcher) prepare(seen Parts) error {
	indexed := cache.Indexers{}
	w.informers = map[Part]cache.SharedIndexInformer{
		PartNodes:          coreinformers.NewNodeInformer(w.from.Client, 0, indexed),
		PartServices:       coreinformers.NewServiceInformer(w.from.Client, metav1.NamespaceAll, 0, indexed),
		PartEndpointSlices: discoveryinformers.NewEndpointSliceInformer(w.from.Client, metav1.NamespaceAll, 0, indexed),
		PartEvents:         coreinformers.NewEventInformer(w.from.Client, metav1.NamespaceAll, 0, indexed),
	}
	for part, informer := range w.informers {
		if seen&part == 0 {
			delete(w.informers, part)
			continue
		}
		if _, err := informer.AddEventHandler(w.handler()); err != nil {
			return err
		}
		err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			w.mu.Lock()
			w.broken[part] = breakage{err, informer.LastSyncResourceVersion()}
			w.mu.Unlock()
			notify(w.poke)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Watcher) handler() cache.ResourceEventHandler {
	happened := func() {
		w.mu.Lock()
		w.changed = true
		w.mu.Unlock()
		notify(w.poke)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if bears(object) {
				happened()
			}
		},
		UpdateFunc: func(old, object any) {
			if bears(object) && !same(old, object) {
				happened()
			}
		},
		DeleteFunc: func(any) { happened() },
	}
}

// bears reports whether a change of an object can change what is shown: most Events are
// about Pods.
func bears(object any) bool {
	e, is := object.(*corev1.Event)
	return !is || e.InvolvedObject.Kind == "Node" || e.InvolvedObject.Kind == "Service"
}

// same reports whether two versions of a Node differ in nothing but that its kubelet
// lives.
func same(old, object any) bool {
	a, ok := old.(*corev1.Node)
	b, also := object.(*corev1.Node)
	if !ok || !also {
		return false
	}
	conditions := slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(x, y corev1.NodeCondition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
	})
	equal := equality.Semantic.DeepEqual
	return conditions && equal(a.Spec, b.Spec) && equal(a.Labels, b.Labels) && equal(a.Annotations, b.Annotations) &&
		equal(a.Status.Addresses, b.Status.Addresses) && a.DeletionTimestamp.Equal(b.DeletionTimestamp)
}

// unwatched are the parts that have to be looked at.
func (w *Watcher) unwatched() Parts {
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := Everything
	for part, informer := range w.informers {
		if informer.HasSynced() && !w.isBroken(part) {
			parts &^= part
		}
	}
	return parts
}

// isBroken forgets what is over.
func (w *Watcher) isBroken(part Part) bool {
	b, broken := w.broken[part]
	if broken && w.informers[part].LastSyncResourceVersion() != b.version {
		delete(w.broken, part)
		return false
	}
	return broken
}

// fill puts into a Snapshot what is watched.
func (w *Watcher) fill(s *Snapshot) {
	for part, informer := range w.informers {
		if !informer.HasSynced() || w.isBroken(part) {
			continue
		}
		store := informer.GetStore()
		s.forget(part)
		s.Parts |= part
		switch part {
		case PartNodes:
			s.Nodes = typed[corev1.Node](store)
			slices.SortFunc(s.Nodes, byName)
		case PartServices:
			s.Services = typed[corev1.Service](store)
			slices.SortFunc(s.Services, byNamespace)
		case PartEndpointSlices:
			s.EndpointSlices = typed[discoveryv1.EndpointSlice](store)
		case PartEvents:
			s.Events = typed[corev1.Event](store)
			slices.SortStableFunc(s.Events, byTime)
		}
	}
}

// left are the Nodes that one of the looks before had and this one doesn't.
func left(earlier, s *Snapshot) map[types.UID]time.Time {
	out := map[types.UID]time.Time{}
	for uid, at := range earlier.Left {
		if s.Taken.Sub(at) <= GracePeriod {
			out[uid] = at
		}
	}
	if !earlier.Saw(PartNodes) || !s.Saw(PartNodes) {
		return out
	}
	for _, n := range earlier.Nodes {
		out[n.UID] = s.Taken
	}
	for _, n := range s.Nodes {
		delete(out, n.UID)
	}
	return out
}

// typed are a store's objects by namespace and name.
func typed[T any](store cache.Store) []*T {
	keys := store.ListKeys()
	slices.Sort(keys)
	out := make([]*T, 0, len(keys))
	for _, key := range keys {
		object, _, _ := store.GetByKey(key) // one that went meanwhile is nil
		if item, ok := object.(*T); ok {
			out = append(out, item)
		}
	}
	return out
}

// notes say what is not watched because that is forbidden.
func (w *Watcher) notes() (notes []string) {
	resources := map[Part]string{
		PartNodes: "nodes", PartServices: "services", PartEvents: "events",
		PartEndpointSlices: "endpointslices.discovery.k8s.io",
	}
	for part, resource := range resources {
		if b, broken := w.broken[part]; broken && apierrors.IsForbidden(b.err) {
			notes = append(notes, "not allowed to watch "+resource+", so that they are asked for again every few seconds: "+
				"ask for a role with the verb \"watch\" on "+resource)
		}
	}
	slices.Sort(notes)
	return notes
}
