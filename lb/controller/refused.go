package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb/converge"
)

// hintPeriod is how often the server list is looked at while targets are refused. The list is cached, so
// most looks cost no request.
const hintPeriod = 15 * time.Second

// watchRefused has targets that were refused asked for again when the server list shows that they can be
// reached now. While none is refused, nobody asks for the list.
func (c *Controller) watchRefused(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !c.converger.Refusals.Any() {
			return
		}
		reachable, err := c.reachable(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("The server list is unknown; targets that were refused are tried later", "err", err)
			return
		}
		if c.converger.Refusals.Hint(reachable) {
			c.enqueueServices(func(*corev1.Service) bool { return true })
		}
	}, hintPeriod)
}

// nodeChanged reports whether a target that was refused may be taken now that its Node has changed, and has
// it asked for again.
func (c *Controller) nodeChanged(old, node *corev1.Node) bool {
	server, ok := converge.Target(node)
	if !ok || equality.Semantic.DeepEqual(old.Status.Addresses, node.Status.Addresses) {
		return false
	}
	return c.converger.Refusals.Changed(server)
}
