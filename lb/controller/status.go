package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

const (
	reasonAccepted = "Accepted"
	reasonPending  = "Pending"
)

// condition sums up what there is to say about a Service.
func condition(notes []lb.Note) metav1.Condition {
	cond := metav1.Condition{
		Type: ConditionAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted,
		Message: "the load balancer is what the Service asks for",
	}
	if len(notes) > 0 {
		cond.Message = lb.Join(notes)
	}
	// The reason is the first error's, but that there is no load balancer of ours outranks whatever
	// is wrong with it; it is remembered by this when the Service goes.
	isError := func(n lb.Note) bool { return n.Grade == lb.Error }
	notOwned := func(n lb.Note) bool { return n.Reason == lb.ReasonNotOwned }
	for _, matches := range []func(lb.Note) bool{isError, notOwned} {
		if i := slices.IndexFunc(notes, matches); i >= 0 {
			cond.Status, cond.Reason = metav1.ConditionFalse, notes[i].Reason
		}
	}
	return cond
}

// telling is what a Service's status is to say.
type telling struct {
	notes   []lb.Note
	status  corev1.LoadBalancerStatus
	managed bool // there is, or may be, a managed certificate
	ours    bool // the addresses are our load balancer's, or there are none
}

// annotationState held what earlier versions remembered of health checks.
const annotationState = "underlay.dev/health-check-state"

// told returns the Service as it is to be.
func told(svc *corev1.Service, t telling) *corev1.Service {
	updated := svc.DeepCopy()
	delete(updated.Annotations, annotationState)
	meta.SetStatusCondition(&updated.Status.Conditions, condition(t.notes))
	if !t.managed {
		meta.RemoveStatusCondition(&updated.Status.Conditions, conditionManaged)
	}
	switch {
	case t.ours:
		meta.RemoveStatusCondition(&updated.Status.Conditions, conditionForeign)
	case !marked(svc) && showsAny(svc):
		markForeign(updated)
	}
	if !helpers.LoadBalancerStatusEqual(&updated.Status.LoadBalancer, &t.status) {
		updated.Status.LoadBalancer = t.status
	}
	return updated
}

// markForeign remembers that a Service came to us with addresses that are not known to be ours:
// unlike those of a load balancer of ours that is gone, they may lead somewhere.
func markForeign(svc *corev1.Service) {
	meta.SetStatusCondition(&svc.Status.Conditions, metav1.Condition{
		Type: conditionForeign, Status: metav1.ConditionTrue, Reason: "Found",
		Message: "the Service had the addresses in its status before a load balancer of this controller",
	})
}

// tell writes condition and status, then announces what is new.
func (c *Controller) tell(ctx context.Context, svc *corev1.Service, t telling) error {
	_, err := c.patch(ctx, svc, told(svc, t))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.announce(svc, t.notes)
	}
	return err
}

// announce makes an Event of every note that the Service's condition does not hold already. The
// condition is the memory: it survives a restart, and one cause is announced once; what it has no
// room for is not.
func (c *Controller) announce(svc *corev1.Service, notes []lb.Note) {
	known := saidOf(svc)
	remembered := lb.Join(notes) // it may be too short for all of them
	for _, n := range notes {
		if text := n.String(); n.Reason != "" && !strings.Contains(known, text) && strings.Contains(remembered, text) {
			c.cfg.Recorder.Event(svc, corev1.EventTypeWarning, n.Reason, n.Announcement())
		}
	}
}

// claim marks a Service as ours, and makes sure that it cannot go before its load balancer:
// finalizer and condition in one write, before anything is created.
func (c *Controller) claim(ctx context.Context, svc *corev1.Service, managed bool) (*corev1.Service, error) {
	updated := svc.DeepCopy()
	if !helpers.HasLBFinalizer(svc) {
		updated.Finalizers = append(updated.Finalizers, helpers.LoadBalancerCleanupFinalizer)
	}
	if !marked(svc) && showsAny(svc) {
		markForeign(updated)
	}
	if !marked(svc) {
		meta.SetStatusCondition(&updated.Status.Conditions, metav1.Condition{
			Type: ConditionAccepted, Status: metav1.ConditionUnknown, Reason: reasonPending,
			Message: "the load balancer is being set up",
		})
	}
	if managed {
		meta.SetStatusCondition(&updated.Status.Conditions, metav1.Condition{
			Type: conditionManaged, Status: metav1.ConditionTrue, Reason: "Requested",
			Message: "the cloud obtains and renews a certificate for the Service, which is removed when the Service does not need it any more",
		})
	}
	return c.patch(ctx, svc, updated)
}

// letGo lets a Service go: no finalizer, no addresses, no condition of ours. One that was handed
// over keeps what its new owner needs.
func (c *Controller) letGo(ctx context.Context, svc *corev1.Service) error {
	updated := svc.DeepCopy()
	if !heldByNodes(svc) {
		meta.RemoveStatusCondition(&updated.Status.Conditions, ConditionAccepted)
	}
	meta.RemoveStatusCondition(&updated.Status.Conditions, conditionManaged)
	meta.RemoveStatusCondition(&updated.Status.Conditions, conditionForeign)
	delete(updated.Annotations, annotationState)
	if !c.handedOver(svc) || heldByNodes(svc) {
		updated.Finalizers = slices.DeleteFunc(updated.Finalizers, func(f string) bool {
			return f == helpers.LoadBalancerCleanupFinalizer
		})
	}
	if !c.handedOver(svc) {
		updated.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	// Removing the load balancer took time: a Service that changed meanwhile is looked at again,
	// for it may have been handed over. The resource version makes the API server refuse the patch
	// then.
	read := svc.DeepCopy()
	read.ResourceVersion = ""
	_, err := c.patch(ctx, read, updated)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patch writes metadata and status of a Service, if they differ. The patch carries the Service's
// UID: when the name was given to another Service in between, the API server refuses it, and
// nothing is created for the one that is gone.
func (c *Controller) patch(ctx context.Context, svc, updated *corev1.Service) (*corev1.Service, error) {
	if equality.Semantic.DeepEqual(svc, updated) {
		return svc, nil
	}
	changes, err := kube.ServicePatch(svc, updated, false)
	if err != nil {
		return nil, fmt.Errorf("encoding status of Service %s: %w", klog.KObj(svc), err)
	}
	// Conditions merge by their type under the strategic merge patch, and finalizers one by one.
	patched, err := c.cfg.Client.Services(svc.Namespace).Patch(ctx, svc.Name, types.StrategicMergePatchType, changes, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("writing status of Service %s: %w", klog.KObj(svc), err)
	}
	c.newest.Wrote(patched)
	return patched, nil
}

// Errors of ports in the status; the API wants such names.
const (
	portErrorProtocol = "underlay.dev/UnsupportedProtocol"
	portErrorShared   = "underlay.dev/NotServedByShared"
)

// ingressStatus is the part of the status that tells how to reach the Service.
func ingressStatus(spec lb.Spec, unopened []int, have lb.State) corev1.LoadBalancerStatus {
	var all []corev1.LoadBalancerIngress
	mode := corev1.LoadBalancerIPModeVIP
	if spec.Publish.Proxy {
		mode = corev1.LoadBalancerIPModeProxy
	}
	for _, ip := range lb.Ingress(spec, have) {
		all = append(all, corev1.LoadBalancerIngress{IP: ip.String(), IPMode: ptr.To(mode)})
	}
	if name := spec.Publish.Hostname; name != "" {
		all = []corev1.LoadBalancerIngress{{Hostname: name}}
	}
	for i := range all {
		all[i].Ports = portStatus(spec, unopened)
	}
	return corev1.LoadBalancerStatus{Ingress: all}
}

// portStatus is empty unless a port is not served; then it holds every port, as the API asks for.
func portStatus(spec lb.Spec, unopened []int) []corev1.PortStatus {
	if len(spec.Unserved)+len(unopened) == 0 {
		return nil
	}
	var ports []corev1.PortStatus
	for i, p := range slices.Concat(spec.Served, spec.Unserved) {
		status := corev1.PortStatus{Port: int32(p.Number), Protocol: corev1.Protocol(p.Protocol)}
		switch {
		case i >= len(spec.Served):
			status.Error = ptr.To(portErrorProtocol)
		case slices.Contains(unopened, p.Number):
			status.Error = ptr.To(portErrorShared)
		}
		ports = append(ports, status)
	}
	return ports
}
