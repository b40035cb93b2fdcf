package kube

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Work processes the items of a queue sequentially until the queue is shut down. It logs an
// error with the message failed and retries the item with backoff.
func Work[T comparable](
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], failed string,
	do func(context.Context, T) error,
) {
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
