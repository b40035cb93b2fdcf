package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

type change struct {
	from, to      *corev1.Service
	notes         []note
	gained, freed []netip.Addr
}

// report writes the status of Services: first of those that lose addresses, then of those that get
// them, so that no two Services show an address that only one of them has. A failed write delays
// only the Services that get the addresses it should have removed.
func (c *Controller) report(ctx context.Context, p plan) error {
	c.overwrites.backoff.GC()
	maps.DeleteFunc(c.overwrites.wrote, func(uid types.UID, _ string) bool {
		return p.services[uid] == nil
	})
	c.newest.Prune(func(svc *corev1.Service) (*corev1.Service, error) {
		return c.services.Services(svc.Namespace).Get(svc.Name)
	})
	changes := c.changes(p)
	if len(changes) == 0 {
		return nil
	}
	if err := c.upToDate(ctx); err != nil {
		return err
	}
	var failed []error
	var outdated error
	var still []netip.Addr
	for _, ch := range changes {
		if slices.ContainsFunc(ch.gained, func(a netip.Addr) bool { return slices.Contains(still, a) }) {
			outdated = fmt.Errorf("%w: Service %s waits until another one shows its address no more",
				errOutdated, klog.KObj(ch.from))
			continue
		}
		wait, rivalry := c.overwrites.delay(ch, p.fleet.now)
		if wait > 0 {
			c.queue.AddAfter(onePass, wait)
			still = append(still, ch.freed...)
			continue
		}
		if rivalry {
			c.recorder.Eventf(ch.from, corev1.EventTypeWarning, reasonOverwritten,
				"another controller goes on writing the status of this Service, and shows %q: set "+
					"spec.loadBalancerClass so that one of them serves it, or stop the other one",
				joined(shown(ch.from)))
		}
		err := c.carryOut(ctx, ch)
		switch {
		case errors.Is(err, errOutdated):
			outdated = err
		case err != nil:
			failed = append(failed, err)
		}
		if err != nil {
			still = append(still, ch.freed...)
		}
	}
	return cmp.Or(errors.Join(failed...), outdated)
}

// upToDate reads the stored ledger unless this pass did, and returns an error if it has changed: a
// former leader must not show addresses that its successor assigned otherwise.
func (c *Controller) upToDate(ctx context.Context) error {
	if c.fresh {
		return nil
	}
	before := c.known.text
	if err := c.read(ctx, time.Now()); err != nil {
		return err
	}
	if c.known.text != before {
		return fmt.Errorf("%w: the stored ledger changed", errOutdated)
	}
	return nil
}

// changes returns the Services with an outdated status. Services that lose addresses come first.
func (c *Controller) changes(p plan) []change {
	var all []change
	for uid, svc := range p.services {
		ch := change{from: svc}
		if _, served := p.request[uid]; served {
			ch.notes = p.notes(uid)
			ch.to = showing(svc, p.ledger, ch.notes)
		} else if c.selection.leftBehind(svc) {
			ch.to = svc.DeepCopy()
			meta.RemoveStatusCondition(&ch.to.Status.Conditions, ConditionAccepted)
		}
		if ch.to == nil || equality.Semantic.DeepEqual(svc.Status, ch.to.Status) {
			continue
		}
		was, is := shown(svc), shown(ch.to)
		ch.gained = slices.DeleteFunc(slices.Clone(is), func(a netip.Addr) bool {
			return slices.Contains(was, a)
		})
		ch.freed = slices.DeleteFunc(was, func(a netip.Addr) bool { return slices.Contains(is, a) })
		all = append(all, ch)
	}
	slices.SortFunc(all, func(a, b change) int {
		if (len(a.freed) > 0) != (len(b.freed) > 0) {
			return len(b.freed) - len(a.freed)
		}
		return strings.Compare(a.from.Namespace+"/"+a.from.Name, b.from.Namespace+"/"+b.from.Name)
	})
	return all
}

func showing(svc *corev1.Service, l addresses.Ledger, notes []note) *corev1.Service {
	updated := svc.DeepCopy()
	var status corev1.LoadBalancerStatus
	for _, f := range families(svc) {
		for _, a := range l.Of(string(svc.UID)) {
			if addresses.FamilyOf(a) == f {
				mode := corev1.LoadBalancerIPModeVIP
				status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{
					IP: a.String(), IPMode: &mode,
				})
			}
		}
	}
	if !helpers.LoadBalancerStatusEqual(&updated.Status.LoadBalancer, &status) {
		updated.Status.LoadBalancer = status
	}
	meta.SetStatusCondition(&updated.Status.Conditions, condition(notes))
	return updated
}

func accepted(svc *corev1.Service) bool {
	return meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted) != nil
}

// carryOut writes one status and sends Events about its changes. It ignores a deleted Service and
// returns errOutdated for a changed one.
func (c *Controller) carryOut(ctx context.Context, ch change) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch, err := kube.ServicePatch(ch.from, ch.to, true)
	if err != nil {
		return fmt.Errorf("encoding the status of Service %s: %w", klog.KObj(ch.from), err)
	}
	patched, err := c.store.client.CoreV1().Services(ch.from.Namespace).Patch(ctx, ch.from.Name,
		types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: Service %s changed", errOutdated, klog.KObj(ch.from))
	case err != nil:
		return fmt.Errorf("writing the status of Service %s: %w", klog.KObj(ch.from), err)
	}
	c.newest.Wrote(patched)
	c.overwrites.wrote[ch.from.UID] = joined(shown(ch.to))
	for _, n := range news(ch.from, ch.notes) {
		c.recorder.Event(ch.from, corev1.EventTypeWarning, n.reason, n.String())
	}
	if len(ch.gained) > 0 {
		c.recorder.Eventf(ch.from, corev1.EventTypeNormal, reasonAssigned, "The Service has %s",
			joined(ch.gained))
	}
	return nil
}

func joined(all []netip.Addr) string {
	texts := make([]string, len(all))
	for i, a := range all {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}
