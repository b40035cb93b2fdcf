package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// listTimeout bounds one try of the live list, over all its pages.
const listTimeout = 2 * time.Minute

// observeExisting observes every Node that has podCIDRs, the oldest first, so that of two
// holders the older keeps. It returns an error only when the context ends.
func (d *decider) observeExisting(ctx context.Context) error {
	holders, err := d.listHolders(ctx)
	if err != nil {
		return err
	}
	cached, err := d.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing cached Nodes: %w", err)
	}
	inCache := map[types.UID]bool{}
	for _, n := range cached {
		inCache[n.UID] = true
		if kube.HasPodCIDRs(n) {
			holders[n.UID] = n
		}
	}
	oldestFirst := make([]*corev1.Node, 0, len(holders))
	for _, n := range holders {
		oldestFirst = append(oldestFirst, n)
	}
	slices.SortFunc(oldestFirst, func(a, b *corev1.Node) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Name, b.Name),
			strings.Compare(string(a.UID), string(b.UID)))
	})
	for _, live := range oldestFirst {
		n := d.track(live)
		n.cached = inCache[live.UID]
		d.observe(ctx, n, live)
		// Whether it still exists is for decide to find out.
		d.queue.Add(n.Name)
	}
	return nil
}

// listHolders lists live, not from a cache, the Nodes that have podCIDRs, and tries until it
// succeeds or the context ends.
func (d *decider) listHolders(ctx context.Context) (map[types.UID]*corev1.Node, error) {
	var holders map[types.UID]*corev1.Node
	again := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
	err := again.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		holders = map[types.UID]*corev1.Node{}
		pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return d.client.CoreV1().Nodes().List(ctx, options)
		})
		err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
			live, ok := obj.(*corev1.Node)
			if !ok {
				return fmt.Errorf("a list of Nodes holds a %T", obj)
			}
			if kube.HasPodCIDRs(live) {
				holders[live.UID] = bare(live)
			}
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			klog.FromContext(ctx).Error(err, "Existing podCIDRs are not known; assigning none until they are")
		}
		return err == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the existing podCIDRs: %w", err)
	}
	return holders, nil
}

// bare keeps of a Node what observing it needs: whole Nodes are large.
func bare(live *corev1.Node) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: live.Name, UID: live.UID, CreationTimestamp: live.CreationTimestamp},
		Spec:       corev1.NodeSpec{PodCIDR: live.Spec.PodCIDR, PodCIDRs: live.Spec.PodCIDRs},
	}
}
