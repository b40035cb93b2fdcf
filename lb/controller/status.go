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
	memory  memory
	managed bool // there is, or may be, a managed certificate
}

// told returns the Service as it is to be.
func told(svc *corev1.Service, t telling) *corev1.Service {
	updated := remembering(svc, t.memory)
	meta.SetStatusCondition(&updated.Status.Conditions, condition(t.notes))
	if !t.managed {
		meta.RemoveStatusCondition(&updated.Status.Conditions, conditionManaged)
	}
	if !helpers.LoadBalancerStatusEqual(&updated.Status.LoadBalancer, &t.status) {
		updated.Status.LoadBalancer = t.status
	}
	return updated
}

// remembering returns a copy of the Service with this memory.
func remembering(svc *corev1.Service, m memory) *corev1.Service {
	updated := svc.DeepCopy()
	text := m.text(svc.UID)
	if text == "" {
		delete(updated.Annotations, lb.AnnotationState)
		return updated
	}
	if updated.Annotations == nil {
		updated.Annotations = make(map[string]string)
	}
	updated.Annotations[lb.AnnotationState] = text
	return updated
}

// announce makes an Event of every note that the Service's condition does not hold already. The
// condition is the memory: it survives a restart, and one cause is announced once; what it has no
// room for is not.
func (c *Controller) announce(svc *corev1.Service, notes []lb.Note) {
	known := saidOf(svc)
	remembered := lb.Join(notes) // it may be too short for all of them
	for _, n := range notes {
		if text := n.String(); !strings.Contains(known, text) && strings.Contains(remembered, text) {
			c.recorder.Event(svc, corev1.EventTypeWarning, n.Reason, n.Announcement())
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

// release lets a Service go: no finalizer, no addresses, no condition of ours. One that was handed
// over keeps what its new owner needs.
func (c *Controller) release(ctx context.Context, svc *corev1.Service) error {
	updated := svc.DeepCopy()
	if !heldByNodes(svc) {
		meta.RemoveStatusCondition(&updated.Status.Conditions, ConditionAccepted)
	}
	meta.RemoveStatusCondition(&updated.Status.Conditions, conditionManaged)
	delete(updated.Annotations, lb.AnnotationState)
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
	patched, err := c.client.Services(svc.Namespace).Patch(ctx, svc.Name, types.StrategicMergePatchType, changes, metav1.PatchOptions{}, "status")
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
func ingressStatus(spec lb.Spec, have lb.State) corev1.LoadBalancerStatus {
	var status corev1.LoadBalancerStatus
	for _, point := range lb.Ingress(spec, have) {
		in := corev1.LoadBalancerIngress{Hostname: point.Hostname, Ports: portStatus(spec)}
		if point.IP.IsValid() {
			mode := corev1.LoadBalancerIPModeVIP
			if point.Proxy {
				mode = corev1.LoadBalancerIPModeProxy
			}
			in.IP, in.IPMode = point.IP.String(), &mode
		}
		status.Ingress = append(status.Ingress, in)
	}
	return status
}

// portStatus is empty unless a port is not served; then it holds every port, as the API asks for.
func portStatus(spec lb.Spec) []corev1.PortStatus {
	if len(spec.Unserved)+len(spec.Unopened) == 0 {
		return nil
	}
	var ports []corev1.PortStatus
	add := func(p lb.Port, reason *string) {
		ports = append(ports, corev1.PortStatus{Port: int32(p.Number), Protocol: corev1.Protocol(p.Protocol), Error: reason})
	}
	protocol, shared := portErrorProtocol, portErrorShared
	for _, p := range spec.Served {
		if slices.Contains(spec.Unopened, p.Number) {
			add(p, &shared)
		} else {
			add(p, nil)
		}
	}
	for _, p := range spec.Unserved {
		add(p, &protocol)
	}
	return ports
}
