package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// ErrIncomplete is returned while the directory lacks the object Complete.
var ErrIncomplete = errors.New("the directory of Nodes in the namespace " + Namespace +
	" is not complete: the node-directory-controller of underlay-ccm writes it; see whether it runs")

var errUnread = errors.New("the API server has not been read")

// Nodes is a coreinformers.NodeInformer: one Node is itself, and every other is what the directory
// has of it. Of these, podCIDRs, addresses, readiness and the label of the control plane are read;
// they have a namespace, the directory's.
type Nodes struct {
	self    string
	own     informers.SharedInformerFactory // of the one Node
	entries informers.SharedInformerFactory // of the directory
	others  atomic.Pointer[[]*corev1.Node]  // when the directory was complete
}

// NewNodes prepares an informer for the machine whose Node is self, of which it keeps what trim
// leaves.
func NewNodes(client kubernetes.Interface, self string, trim cache.TransformFunc) *Nodes {
	named := func(o *metav1.ListOptions) { o.FieldSelector = kube.Only(self).FieldSelector }
	n := &Nodes{
		self: self,
		own: informers.NewSharedInformerFactoryWithOptions(client, 0,
			informers.WithTweakListOptions(named), informers.WithTransform(trim)),
		entries: factory(client, informers.WithTransform(transform())),
	}
	n.ownInformer() // a factory starts the informers that were requested
	n.entryInformer()
	return n
}

// Run watches until the context ends, and reports in the log what is missing.
func (n *Nodes) Run(ctx context.Context) {
	n.own.StartWithContext(ctx)
	n.entries.StartWithContext(ctx)
	reports := time.NewTicker(30 * time.Second)
	defer reports.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-reports.C:
			if err := n.Ready(); err != nil {
				klog.FromContext(ctx).Info("Waiting for Nodes; this node keeps its routes", "reason", err)
			}
		}
	}
	n.own.Shutdown()
	n.entries.Shutdown()
}

// Ready returns why the Nodes are not current, or nil.
func (n *Nodes) Ready() error {
	if !n.ownInformer().HasSynced() || !n.entryInformer().HasSynced() {
		return errUnread
	}
	_, complete, err := n.entryInformer().GetStore().GetByKey(Namespace + "/" + Complete)
	if err == nil && !complete {
		return ErrIncomplete
	}
	return err
}

func (n *Nodes) ownInformer() cache.SharedIndexInformer { return n.own.Core().V1().Nodes().Informer() }

func (n *Nodes) entryInformer() cache.SharedIndexInformer {
	return n.entries.Core().V1().ConfigMaps().Informer()
}

// Informer returns an informer of which AddEventHandler and HasSynced are of all Nodes; everything
// else of it is of the machine's own. A handler is called by two goroutines, and for the object
// Complete too.
func (n *Nodes) Informer() cache.SharedIndexInformer { return informer{n.ownInformer(), n} }

// Lister returns a lister of all Nodes. Its Get finds the machine's own alone.
func (n *Nodes) Lister() corelisters.NodeLister {
	return lister{n.own.Core().V1().Nodes().Lister(), n}
}

type informer struct {
	cache.SharedIndexInformer
	nodes *Nodes
}

func (i informer) HasSynced() bool { return i.nodes.Ready() == nil }

func (i informer) AddEventHandler(
	h cache.ResourceEventHandler,
) (cache.ResourceEventHandlerRegistration, error) {
	others := func(obj any) bool {
		name, err := cache.DeletionHandlingObjectToName(obj)
		return err == nil && name.Name != i.nodes.self
	}
	filtered := cache.FilteringResourceEventHandler{FilterFunc: others, Handler: h}
	if _, err := i.nodes.entryInformer().AddEventHandler(filtered); err != nil {
		return nil, err
	}
	return i.SharedIndexInformer.AddEventHandler(h)
}

type lister struct {
	corelisters.NodeLister
	nodes *Nodes
}

// List returns ErrIncomplete before the directory was complete. Where it is incomplete again,
// because a client deletes it, List returns the others that there were before, so that no route is
// removed.
func (l lister) List(selector labels.Selector) ([]*corev1.Node, error) {
	if !l.nodes.ownInformer().HasSynced() {
		return nil, errUnread
	}
	if others, complete := l.nodes.pick(l.nodes.entryInformer().GetStore().List()); complete {
		l.nodes.others.Store(&others)
	}
	others := l.nodes.others.Load()
	if others == nil {
		return nil, ErrIncomplete
	}
	all, err := l.NodeLister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	all = append(all, *others...)
	unwanted := func(n *corev1.Node) bool { return !selector.Matches(labels.Set(n.Labels)) }
	return slices.DeleteFunc(all, unwanted), nil
}

// pick returns the other machines' Nodes, and reports whether the directory is complete.
func (n *Nodes) pick(entries []any) (others []*corev1.Node, complete bool) {
	for _, e := range entries {
		switch node := e.(*corev1.Node); node.Name {
		case Complete:
			complete = true
		case n.self:
		default:
			others = append(others, node)
		}
	}
	return others, complete
}

// List reads what an informer of Nodes would have, once. The machine's own Node is whole.
func List(ctx context.Context, client kubernetes.Interface, self string) ([]*corev1.Node, error) {
	own, err := client.CoreV1().Nodes().List(ctx, kube.Only(self))
	if err != nil {
		return nil, fmt.Errorf("reading this machine's Node: %w", err)
	}
	labelled := metav1.ListOptions{LabelSelector: label}
	stored, err := client.CoreV1().ConfigMaps(Namespace).List(ctx, labelled)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of Nodes: %w", err)
	}
	nodeOf := transform()
	entries := make([]any, len(stored.Items))
	for i := range stored.Items {
		if entries[i], err = nodeOf(&stored.Items[i]); err != nil {
			return nil, err
		}
	}
	others, complete := (&Nodes{self: self}).pick(entries)
	if !complete {
		return nil, ErrIncomplete
	}
	var all []*corev1.Node
	for i := range own.Items {
		all = append(all, &own.Items[i])
	}
	return append(all, others...), nil
}
