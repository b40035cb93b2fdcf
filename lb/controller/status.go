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

func condition(notes []lb.Note) metav1.Condition {
	cond := metav1.Condition{
		Type: ConditionAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted,
		Message: "the load balancer is as the Service requests",
	}
	if len(notes) > 0 {
		cond.Message = lb.Join(notes)
	}
	// The reason is that of the first error. lb.ReasonNotOwned takes precedence: it records that
	// the Service has no load balancer, for its deletion.
	isError := func(n lb.Note) bool { return n.Grade == lb.Error }
	notOwned := func(n lb.Note) bool { return n.Reason == lb.ReasonNotOwned }
	for _, matches := range []func(lb.Note) bool{isError, notOwned} {
		if i := slices.IndexFunc(notes, matches); i >= 0 {
			cond.Status, cond.Reason = metav1.ConditionFalse, notes[i].Reason
		}
	}
	return cond
}

// serviceReport is an update of a Service's status.
type serviceReport struct {
	notes   []lb.Note
	status  corev1.LoadBalancerStatus
	managed bool // it has, or may have, a managed certificate
	ours    bool // the addresses belong to our load balancer, or are empty
}

func withReport(svc *corev1.Service, t serviceReport) *corev1.Service {
	updated := svc.DeepCopy()
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

// markForeign records that a Service had addresses before this controller served it. They may
// still work, unlike those of a deleted load balancer.
func markForeign(svc *corev1.Service) {
	meta.SetStatusCondition(&svc.Status.Conditions, metav1.Condition{
		Type: conditionForeign, Status: metav1.ConditionTrue, Reason: "Found",
		Message: "the Service had the addresses in its status before a load balancer of this controller",
	})
}

// reportService writes condition and status, then emits Events for new notes.
func (c *Controller) reportService(
	ctx context.Context, svc *corev1.Service, t serviceReport,
) error {
	_, err := c.patch(ctx, svc, withReport(svc, t))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.announce(svc, t.notes)
	}
	return err
}

// announce emits an Event for each note that is not in the Service's condition yet. The condition
// survives a restart, so each cause is reported once. Notes that it has no room for get no Event.
func (c *Controller) announce(svc *corev1.Service, notes []lb.Note) {
	known := statusMessage(svc)
	remembered := lb.Join(notes) // may be truncated
	for _, n := range notes {
		if text := n.String(); n.Reason != "" && !strings.Contains(known, text) &&
			strings.Contains(remembered, text) {
			c.cfg.Recorder.Event(svc, corev1.EventTypeWarning, n.Reason, n.Announcement())
		}
	}
}

// claim marks a Service and prevents its deletion before its load balancer's: finalizer and
// condition are written in a single request, before anything is created.
func (c *Controller) claim(
	ctx context.Context, svc *corev1.Service, managed bool,
) (*corev1.Service, error) {
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

// letGo removes our finalizer, addresses and conditions. A Service that was handed over keeps
// those that its new controller needs.
func (c *Controller) letGo(ctx context.Context, svc *corev1.Service) error {
	updated := svc.DeepCopy()
	if !heldByNodes(svc) {
		meta.RemoveStatusCondition(&updated.Status.Conditions, ConditionAccepted)
	}
	meta.RemoveStatusCondition(&updated.Status.Conditions, conditionManaged)
	meta.RemoveStatusCondition(&updated.Status.Conditions, conditionForeign)
	if !c.transferred(svc) || heldByNodes(svc) {
		updated.Finalizers = slices.DeleteFunc(updated.Finalizers, func(f string) bool {
			return f == helpers.LoadBalancerCleanupFinalizer
		})
	}
	if !c.transferred(svc) {
		updated.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	// If the Service changed during the deletion, it may have been handed over, and is reconciled
	// again: the resource version makes the API server refuse the patch.
	read := svc.DeepCopy()
	read.ResourceVersion = ""
	_, err := c.patch(ctx, read, updated)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patch writes changed metadata and status. The patch contains the UID: if the Service was
// recreated, the API server refuses it, and no object is created for the deleted Service.
func (c *Controller) patch(
	ctx context.Context, svc, updated *corev1.Service,
) (*corev1.Service, error) {
	if equality.Semantic.DeepEqual(svc, updated) {
		return svc, nil
	}
	changes, err := kube.ServicePatch(svc, updated, false)
	if err != nil {
		return nil, fmt.Errorf("encoding status of Service %s: %w", klog.KObj(svc), err)
	}
	// The strategic merge patch merges conditions by type, and finalizers by value.
	patched, err := c.cfg.Client.Services(svc.Namespace).Patch(ctx, svc.Name,
		types.StrategicMergePatchType, changes, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("writing status of Service %s: %w", klog.KObj(svc), err)
	}
	c.newest.Wrote(patched)
	return patched, nil
}

func ingressStatus(spec lb.Spec, have lb.State) corev1.LoadBalancerStatus {
	if name := spec.Publish.Hostname; name != "" {
		return corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: name}}}
	}
	mode := corev1.LoadBalancerIPModeVIP
	if spec.Publish.Proxy {
		mode = corev1.LoadBalancerIPModeProxy
	}
	var all []corev1.LoadBalancerIngress
	for _, ip := range lb.Ingress(spec, have) {
		all = append(all, corev1.LoadBalancerIngress{IP: ip.String(), IPMode: ptr.To(mode)})
	}
	return corev1.LoadBalancerStatus{Ingress: all}
}
