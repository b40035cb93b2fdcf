package kube

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Work does what a queue says, one item after the other, until the queue is shut down. What fails
// is logged with this message and tried again, later and later.
func Work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], failed string, do func(context.Context, T) error) {
	for {
		item, stop := queue.Get()
		if stop {
			return
		}
		if err := do(ctx, item); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, failed, "item", item)
			queue.AddRateLimited(item)
		} else {
			queue.Forget(item)
		}
		queue.Done(item)
	}
}
