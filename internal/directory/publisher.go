package directory

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	writers = 4
	// completePeriod is the time between checks for completeness.
	completePeriod = time.Second
	// calm is the time without deletions before Complete is written again: if a client deletes
	// all entries, Complete is deleted first and must not be recreated before the last deletion.
	calm = 5 * time.Second
)

// Publisher writes the directory. Run it only in the leader.
type Publisher struct {
	client    typedcorev1.CoreV1Interface
	nodes     corelisters.NodeLister
	synced    cache.InformerSynced
	published cache.SharedIndexInformer
	entries   corelisters.ConfigMapNamespaceLister         // of published
	queue     workqueue.TypedRateLimitingInterface[string] // names of ConfigMaps
	deleted   atomic.Pointer[time.Time]                    // last one by another client
}

// NewPublisher subscribes a publisher to Nodes and to the directory. It sends no request.
func NewPublisher(
	client kubernetes.Interface, nodes coreinformers.NodeInformer,
) (*Publisher, error) {
	published := newInformer(client)
	p := &Publisher{
		client: client.CoreV1(), nodes: nodes.Lister(), synced: nodes.Informer().HasSynced,
		published: published,
		entries:   corelisters.NewConfigMapLister(published.GetIndexer()).ConfigMaps(Namespace),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "node_directory"}),
	}
	changed := func(obj any) { p.queue.Add(nameOf(obj)) }
	events := cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed,
	}
	if _, err := nodes.Informer().AddEventHandler(events); err != nil {
		return nil, fmt.Errorf("watching Nodes for the directory: %w", err)
	}
	events.DeleteFunc = func(obj any) {
		p.noteDeletion(nameOf(obj))
		changed(obj)
	}
	if _, err := published.AddEventHandler(events); err != nil {
		return nil, fmt.Errorf("watching the directory of Nodes: %w", err)
	}
	return p, nil
}

// Run publishes until the context is done. The caller starts the Node informer.
func (p *Publisher) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("directory"))
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { p.published.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), p.synced, p.published.HasSynced) {
		return fmt.Errorf("directory of Nodes: never synced: %w", ctx.Err())
	}
	p.queue.Add(Complete)
	for range writers {
		workers.Go(func() {
			kube.Work(ctx, p.queue, "Directory of Nodes not written; trying again", p.sync)
		})
	}
	<-ctx.Done()
	p.queue.ShutDown()
	return nil
}

func nameOf(obj any) string {
	name, _ := cache.DeletionHandlingObjectToName(obj) // fails only for what is no object
	return name.Name
}

// noteDeletion records the time of a deletion by another client.
func (p *Publisher) noteDeletion(name string) {
	if _, err := p.nodes.Get(name); err == nil || name == Complete {
		now := time.Now()
		p.deleted.Store(&now)
	}
}

// sync creates, updates or deletes a ConfigMap.
func (p *Publisher) sync(ctx context.Context, name string) error {
	if name == Complete {
		return p.complete(ctx)
	}
	live, err := p.entries.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	node, err := p.nodes.Get(name)
	switch {
	case apierrors.IsNotFound(err) && live == nil:
		return nil
	case apierrors.IsNotFound(err):
		return p.remove(ctx, live)
	case err != nil:
		return err
	}
	want, err := Object(node)
	if err != nil || live != nil && same(live, want) {
		return err
	}
	if live == nil {
		return p.create(ctx, want)
	}
	// A Node never loses its podCIDRs, so here the cache of Nodes is older than the entry.
	if before := compacted(live); before.UID == node.UID &&
		len(before.PodCIDRs) > len(entryOf(node).PodCIDRs) {
		if node, err = p.client.Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if want, err = Object(node); err != nil {
			return err
		}
	}
	_, err = p.client.ConfigMaps(Namespace).Update(ctx, want, metav1.UpdateOptions{})
	return err
}

// create creates a ConfigMap that the cache lacks. It updates an existing object: the cache may
// be older, or another client removed the label.
func (p *Publisher) create(ctx context.Context, want *corev1.ConfigMap) error {
	configMaps := p.client.ConfigMaps(Namespace)
	_, err := configMaps.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = configMaps.Update(ctx, want, metav1.UpdateOptions{})
	}
	return err
}

// remove deletes a ConfigMap without a Node. After a change of the leader, the cache of Nodes
// may be older than the directory, so the Node must be missing in the API server too.
func (p *Publisher) remove(ctx context.Context, live *corev1.ConfigMap) error {
	switch _, err := p.client.Nodes().Get(ctx, live.Name, metav1.GetOptions{}); {
	case err == nil:
		p.queue.AddAfter(live.Name, completePeriod)
		return nil
	case !apierrors.IsNotFound(err):
		return err
	}
	unchanged := &metav1.Preconditions{ResourceVersion: &live.ResourceVersion}
	options := metav1.DeleteOptions{Preconditions: unchanged}
	err := p.client.ConfigMaps(Namespace).Delete(ctx, live.Name, options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// complete creates the object Complete once every Node has its entry.
func (p *Publisher) complete(ctx context.Context) error {
	if _, err := p.entries.Get(Complete); !apierrors.IsNotFound(err) {
		return err
	}
	if at := p.deleted.Load(); at != nil && time.Since(*at) < calm {
		p.queue.AddAfter(Complete, completePeriod)
		return nil
	}
	nodes, err := p.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, node := range nodes {
		want, err := Object(node)
		if err != nil {
			return err
		}
		live, err := p.entries.Get(node.Name)
		if node.Name != Complete && (err != nil || !same(live, want)) {
			p.queue.AddAfter(Complete, completePeriod)
			return nil
		}
	}
	done := metav1.ObjectMeta{Name: Complete, Namespace: Namespace, Labels: labelled()}
	return p.create(ctx, &corev1.ConfigMap{ObjectMeta: done})
}
