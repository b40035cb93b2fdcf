package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// ErrIncomplete is returned while the directory lacks the object Complete.
var ErrIncomplete = errors.New("the directory of Nodes in the namespace " + Namespace +
	" is not complete: the node-directory-controller of underlay-ccm writes it; see whether it runs")

var errUnread = errors.New("the API server has not been read")

// Nodes caches a machine's own Node and the directory's entries of all other Nodes.
type Nodes struct {
	self         string
	own, entries cache.SharedIndexInformer
	others       atomic.Pointer[[]*kube.Node] // last state of a complete directory
}

// NewNodes returns a cache for the machine with the Node self, which trim transforms.
func NewNodes(client kubernetes.Interface, self string, trim cache.TransformFunc) *Nodes {
	named := func(o *metav1.ListOptions) { o.FieldSelector = kube.Only(self).FieldSelector }
	n := &Nodes{
		self: self, own: coreinformers.NewFilteredNodeInformer(client, 0, nil, named),
		entries: newInformer(client),
	}
	_ = n.own.SetTransform(trim) // fails only while the informer runs
	_ = n.entries.SetTransform(compact)
	return n
}

// Run watches until the context is done, and logs why the Nodes are not ready.
func (n *Nodes) Run(ctx context.Context) {
	var informers sync.WaitGroup
	defer informers.Wait()
	informers.Go(func() { n.own.RunWithContext(ctx) })
	informers.Go(func() { n.entries.RunWithContext(ctx) })
	reports := time.NewTicker(30 * time.Second)
	defer reports.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reports.C:
			if err := n.Ready(); err != nil {
				klog.FromContext(ctx).Info("Waiting for Nodes; this node keeps its routes", "reason", err)
			}
		}
	}
}

// Ready returns why the Nodes are not current, or nil.
func (n *Nodes) Ready() error {
	if !n.own.HasSynced() || !n.entries.HasSynced() {
		return errUnread
	}
	_, complete, err := n.entries.GetStore().GetByKey(Namespace + "/" + Complete)
	if err == nil && !complete {
		return ErrIncomplete
	}
	return err
}

// Own returns the machine's own Node, or nil if there is none.
func (n *Nodes) Own() *corev1.Node {
	found, exists, err := n.own.GetStore().GetByKey(n.self)
	if err != nil || !exists {
		return nil
	}
	return found.(*corev1.Node)
}

// Subscribe calls own for each change of the machine's own Node, with nil if the Node does not
// exist, and other with the name of each other Node that changes, including the object Complete.
// Each is called from its own goroutine.
func (n *Nodes) Subscribe(own func(old, now *corev1.Node), other func(name string)) error {
	others := func(obj any) {
		if name := nameOf(obj); name != n.self {
			other(name)
		}
	}
	_, err := n.entries.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: others, DeleteFunc: others,
		UpdateFunc: func(old, obj any) {
			if entry := obj.(*cached); !entry.Equal(&old.(*cached).Node) {
				others(entry)
			}
		},
	})
	if err != nil {
		return err
	}
	_, err = n.own.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { own(nil, obj.(*corev1.Node)) },
		UpdateFunc: func(old, obj any) { own(old.(*corev1.Node), obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) {
			old, _ := obj.(*corev1.Node) // unless the deletion itself was missed
			own(old, nil)
		},
	})
	return err
}

// All returns all Nodes, or ErrIncomplete if the directory was never complete. If a client deletes
// it, All returns the last complete state, so that no route is removed.
func (n *Nodes) All() ([]*kube.Node, error) {
	if !n.own.HasSynced() {
		return nil, errUnread
	}
	if others, complete := pick(n.entries.GetStore().List(), n.self); complete {
		n.others.Store(&others)
	}
	others := n.others.Load()
	if others == nil {
		return nil, ErrIncomplete
	}
	if own := n.Own(); own != nil {
		return append(slices.Clip(*others), kube.NodeOf(own)), nil
	}
	return *others, nil
}

// pick returns the Nodes of other machines, and reports whether the directory is complete.
func pick(entries []any, self string) (others []*kube.Node, complete bool) {
	others = make([]*kube.Node, 0, len(entries))
	for _, e := range entries {
		switch node := &e.(*cached).Node; node.Name {
		case Complete:
			complete = true
		case self:
		default:
			others = append(others, node)
		}
	}
	return others, complete
}

// List reads the machine's own Node, or nil, and all Nodes once, without a cache.
func List(
	ctx context.Context, client kubernetes.Interface, self string,
) (own *corev1.Node, all []*kube.Node, err error) {
	found, err := client.CoreV1().Nodes().List(ctx, kube.Only(self))
	if err != nil {
		return nil, nil, fmt.Errorf("reading this machine's Node: %w", err)
	}
	labelled := metav1.ListOptions{LabelSelector: label}
	stored, err := client.CoreV1().ConfigMaps(Namespace).List(ctx, labelled)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the directory of Nodes: %w", err)
	}
	entries := make([]any, len(stored.Items))
	for i := range stored.Items {
		entries[i] = compacted(&stored.Items[i])
	}
	all, complete := pick(entries, self)
	if !complete {
		return nil, nil, ErrIncomplete
	}
	for i := range found.Items {
		own = &found.Items[i]
		all = append(all, kube.NodeOf(own))
	}
	return own, all, nil
}
