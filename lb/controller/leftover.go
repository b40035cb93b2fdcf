package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/lb"
)

// A Service that nobody of ours has marked can have a load balancer all the same: the Hetzner
// controller made it, or the status got lost, and the Service asked for none any more, or went,
// while no controller ran. Its finalizer says that somebody has to clean up, and an exact label
// that it is us.

// leftover reports whether an unmarked Service is worth a look. Owned are the load balancers with
// its labels. One of another implementation is looked at only for those: the finalizer is theirs.
func (c *Controller) leftover(svc *corev1.Service, owned []lb.State) bool {
	if !c.mayBeLeftover(svc) {
		return false
	}
	_, told := c.unexplained.Load(svc.UID)
	return len(owned) > 0 || svc.Spec.Type != corev1.ServiceTypeLoadBalancer && !told
}

func (c *Controller) mayBeLeftover(svc *corev1.Service) bool {
	return helpers.HasLBFinalizer(svc) && !c.wants(svc) && !c.needsCleanup(svc) && !keeps(svc)
}

// cleanLeftover removes what exact labels assign to a Service, or tells what is in the way of its
// finalizer. The Service is marked before anything is removed, so that an interrupted cleanup goes
// on although nothing is left to be found.
func (c *Controller) cleanLeftover(ctx context.Context, svc *corev1.Service) ([]lb.Note, error) {
	theirs := svc.Spec.Type == corev1.ServiceTypeLoadBalancer
	have, err := c.find(ctx, c.owner(svc), !theirs)
	var shares *sharesError
	if errors.As(err, &shares) {
		if _, err := c.claim(ctx, svc, !theirs); err != nil {
			return nil, err
		}
		c.leave(svc, shares.groups, nodeDelay)
		return nil, nil
	}
	if err != nil {
		if _, final := noteOf(err, lb.Spec{}); final {
			c.announceUnexplained(svc, err.Error())
			return nil, nil
		}
		return nil, fmt.Errorf("looking for what the Service left: %w", err)
	}
	switch {
	case have.Exists():
		claimed, err := c.claim(ctx, svc, !theirs)
		if err != nil {
			return nil, err
		}
		return c.cleanup(ctx, claimed)
	case !theirs:
		if err := c.doubted(ctx); err != nil {
			return nil, err
		}
		c.announceUnexplained(svc, fmt.Sprintf("no load balancer carries the labels of this Service and of cluster %q, or %s with its UID", c.defaults.Cluster, lb.LabelPeer))
	}
	return nil, nil
}

// announceUnexplained tells once in a process why a finalizer stays, and how to remove it.
func (c *Controller) announceUnexplained(svc *corev1.Service, why string) {
	if _, told := c.unexplained.LoadOrStore(svc.UID, true); told {
		return
	}
	at := slices.Index(svc.Finalizers, helpers.LoadBalancerCleanupFinalizer)
	c.recorder.Eventf(svc, corev1.EventTypeWarning, lb.ReasonNotOwned,
		`metadata.finalizers=%q: the Service asks for no load balancer any more, and the finalizer stays because it is not known whose it is: %s. `+
			`If no other controller is about to clean up, delete in the cloud what the Service had, and run: `+
			`kubectl -n %s patch service %s --type=json -p '[{"op":"test","path":"/metadata/finalizers/%d","value":%[1]q},{"op":"remove","path":"/metadata/finalizers/%[5]d"}]'`,
		helpers.LoadBalancerCleanupFinalizer, why, svc.Namespace, svc.Name, at)
}
