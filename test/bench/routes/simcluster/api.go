package simcluster

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// API is client-go's fake API server, extended with resource versions of Nodes, by which
// controllers detect a lagging cache, and with a record of writes.
type API struct {
	Client *fake.Clientset

	tracker clienttesting.ObjectTracker
	// deleting is called with Nodes that a controller deletes, before they are deleted.
	deleting func(*corev1.Node)

	mu       sync.Mutex
	version  int
	feeds    []*feed
	told     []Telling
	unlisted string
}

// Telling is one write of a Node's NetworkUnavailable condition.
type Telling struct {
	Node, Says string // "status reason"
	At         time.Time
}

// newAPI composes the fake itself: with NewClientset, which keeps managed fields, two thirds of a
// test's time would be spent on those.
func newAPI(deleting func(*corev1.Node)) *API {
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	a := &API{Client: &fake.Clientset{}, tracker: tracker, deleting: deleting, version: 1000}
	perform := clienttesting.ObjectReaction(tracker)
	a.Client.AddReactor("*", "nodes", a.react(perform))
	a.Client.AddReactor("*", "*", perform)
	a.Client.AddWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := newFeed()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.feeds = append(a.feeds, w)
		return true, w, nil
	})
	return a
}

func (a *API) react(perform clienttesting.ReactionFunc) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			node := a.stamp(action.GetObject().(*corev1.Node).DeepCopy())
			err := a.tracker.Create(nodesResource, node, "")
			a.publish(watch.Added, node, err)
			return true, node, err
		case clienttesting.UpdateActionImpl:
			return a.update(action)
		case clienttesting.PatchActionImpl:
			return a.patch(perform, action)
		case clienttesting.DeleteActionImpl:
			if node, err := a.node(action.GetName()); err == nil {
				a.deleting(node)
			}
			return true, nil, a.Remove(action.GetName())
		case clienttesting.ListActionImpl:
			return a.list(perform, action)
		}
		return false, nil, nil
	}
}

// publish sends a stored change to the watchers.
func (a *API) publish(kind watch.EventType, node *corev1.Node, err error) {
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.feeds {
		f.add(kind, node)
	}
}

// store replaces a Node by a new version.
func (a *API) store(node *corev1.Node) error {
	err := a.tracker.Update(nodesResource, a.stamp(node), "")
	a.publish(watch.Modified, node, err)
	return err
}

var nodesResource = corev1.SchemeGroupVersion.WithResource("nodes")

func (a *API) stamp(node *corev1.Node) *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	node.ResourceVersion = strconv.Itoa(a.version)
	return node
}

func (a *API) node(name string) (*corev1.Node, error) {
	object, err := a.tracker.Get(nodesResource, "", name)
	if err != nil {
		return nil, err
	}
	return object.(*corev1.Node), nil
}

func (a *API) update(action clienttesting.UpdateActionImpl) (bool, runtime.Object, error) {
	node := action.GetObject().(*corev1.Node).DeepCopy()
	stored, err := a.node(node.Name)
	if err != nil {
		return true, nil, err
	}
	if node.ResourceVersion != "" && node.ResourceVersion != stored.ResourceVersion {
		return true, nil, apierrors.NewConflict(nodesResource.GroupResource(), node.Name, fmt.Errorf("version %s is not %s", node.ResourceVersion, stored.ResourceVersion))
	}
	return true, node, a.store(node)
}

func (a *API) patch(
	perform clienttesting.ReactionFunc, action clienttesting.PatchActionImpl,
) (bool, runtime.Object, error) {
	before, err := a.node(action.GetName())
	if err != nil {
		return true, nil, err
	}
	handled, object, err := perform(action)
	if err != nil {
		return handled, object, err
	}
	node := object.(*corev1.Node).DeepCopy()
	if err := a.store(node); err != nil {
		return true, nil, err
	}
	was, is := kube.Condition(before, corev1.NodeNetworkUnavailable), kube.Condition(node,
		corev1.NodeNetworkUnavailable)
	if is != nil &&
		(was == nil || was.Status != is.Status || was.Reason != is.Reason || was.Message != is.Message) {
		a.mu.Lock()
		a.told = append(a.told, Telling{node.Name, Says(node), time.Now()})
		a.mu.Unlock()
	}
	return true, node, nil
}

// list serves requests that accept a cache (resource version 0) without the Node of HideFromCaches.
func (a *API) list(
	perform clienttesting.ReactionFunc, action clienttesting.ListActionImpl,
) (bool, runtime.Object, error) {
	a.mu.Lock()
	hidden := a.unlisted
	a.mu.Unlock()
	if hidden == "" || action.ListOptions.ResourceVersion == "" && action.ListOptions.ResourceVersionMatch == "" {
		return false, nil, nil
	}
	_, object, err := perform(action)
	if err != nil {
		return true, nil, err
	}
	list := object.(*corev1.NodeList)
	kept := list.Items[:0:0]
	for _, node := range list.Items {
		if node.Name != hidden {
			kept = append(kept, node)
		}
	}
	list.Items = kept
	return true, list, nil
}

// HideFromCaches hides a Node from new caches, as when the API server of the request lags behind;
// "" ends it. The Node appears with its next change.
func (a *API) HideFromCaches(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unlisted = name
}

// Told returns the conditions that were written since the last call.
func (a *API) Told() []Telling {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.told
	a.told = nil
	return told
}

// Says is "status reason" of a Node's NetworkUnavailable condition, or "none".
func Says(node *corev1.Node) string {
	c := kube.Condition(node, corev1.NodeNetworkUnavailable)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason
}

// Nodes lists the current Nodes.
func (a *API) Nodes(ctx context.Context) ([]corev1.Node, error) {
	list, err := a.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// stored returns the tracker's Nodes, without a request.
func (a *API) stored() []*corev1.Node {
	object, err := a.tracker.List(nodesResource, corev1.SchemeGroupVersion.WithKind("Node"), "")
	if err != nil {
		return nil
	}
	list := object.(*corev1.NodeList)
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return nodes
}

// Edit changes a Node as a client other than the manager.
func (a *API) Edit(name string, change func(*corev1.Node)) error {
	stored, err := a.node(name)
	if err != nil {
		return err
	}
	node := stored.DeepCopy()
	change(node)
	return a.store(node)
}

// SetReady makes a kubelet responsive, or not.
func (a *API) SetReady(name string, is bool) error {
	return a.Edit(name, func(node *corev1.Node) {
		for i := range node.Status.Conditions {
			if node.Status.Conditions[i].Type == corev1.NodeReady {
				node.Status.Conditions[i] = ready(is)
			}
		}
	})
}

// Remove deletes a Node as an administrator does.
func (a *API) Remove(name string) error {
	node, err := a.node(name)
	if err != nil {
		return err
	}
	err = a.tracker.Delete(nodesResource, "", name)
	a.publish(watch.Deleted, a.stamp(node.DeepCopy()), err)
	return err
}
