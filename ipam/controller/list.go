package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/sleep"
)

// listTimeout bounds the live list, over all its pages.
const listTimeout = 2 * time.Minute

// listUntilDone lists the holders until that succeeds or the context ends: after a fence, a
// later list is as good, and another fence would have no benefit.
func (d *decider) listUntilDone(ctx context.Context) ([]*corev1.Node, error) {
	for again := backoff(); ; {
		holders, err := d.listHolders(ctx)
		if err == nil {
			return holders, nil
		}
		klog.FromContext(ctx).Error(err, "Existing podCIDRs are not known; trying again")
		if err := sleep.For(ctx, again()); err != nil {
			return nil, err
		}
	}
}

// listHolders returns the Nodes with podCIDRs from a live list.
func (d *decider) listHolders(ctx context.Context) ([]*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	light := kube.Light() // whole Nodes are large
	var holders []*corev1.Node
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return d.Client.CoreV1().Nodes().List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		live, ok := obj.(*corev1.Node)
		if !ok {
			return fmt.Errorf("a list of Nodes holds a %T", obj)
		}
		if kube.HasPodCIDRs(live) {
			holders = append(holders, live)
		}
		_, err := light(live)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the existing podCIDRs: %w", err)
	}
	return holders, nil
}
