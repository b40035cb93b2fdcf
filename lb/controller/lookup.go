package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// lookUp finds the certificates and primary IPs that a plan depends on.
func (c *Controller) lookUp(ctx context.Context, in *lb.Input, o *outcome) (err error) {
	if slices.ContainsFunc(in.Members, lb.Member.NeedsCertificates) {
		if in.Certificates, err = c.backend.Certificates(ctx); err != nil {
			return fmt.Errorf("looking for certificates: %w", err)
		}
	}
	if in.Owner.Group != "" || !in.Members[0].Parsed || in.Members[0].Standing != lb.Wanted {
		return nil
	}
	spec := in.Members[0].Spec
	unknown := spec.UnknownPrimaryIPs(in.Have)
	if len(unknown) > 0 && !o.looked && (in.Have.Exists() || len(spec.Hindrances()) == 0) {
		if o.primaryIPs, err = c.backend.PrimaryIPs(ctx, unknown); err != nil {
			return fmt.Errorf("looking for primary IPs: %w", err)
		}
		o.looked = true
	}
	in.PrimaryIPs, in.Looked = o.primaryIPs, o.looked
	return nil
}

// unreachable returns why a cloud server cannot be reached as a target, by the server list, which
// is cached: then the cloud is not asked to try. It is looked at only for a server that some load
// balancer was refused.
func (c *Controller) unreachable(ctx context.Context, o *outcome) func(lb.Op) error {
	if c.cfg.Reachable == nil || !o.have.Exists() {
		return func(lb.Op) error { return nil }
	}
	var reached map[lb.Target]bool
	looked := false
	return func(op lb.Op) error {
		add, ok := op.(lb.AddTarget)
		if replace, is := op.(lb.ReplaceTarget); is {
			add.Target, ok = replace.New, slices.Contains(o.have.Targets, replace.Old)
		}
		if !ok || add.Target.Server == 0 || add.Target.Pod() || slices.Contains(o.have.Targets, add.Target) || !c.backoff.wasRefused(op) {
			return nil
		}
		if !looked {
			var err error
			if reached, err = c.cfg.Reachable(ctx, time.Unix(0, c.nodesChanged.Load())); err != nil {
				klog.FromContext(ctx).V(2).Info("The server list is unknown", "err", err)
			}
			looked = true
		}
		can, known := reached[add.Target]
		if c.backoff.hint(op, can); can || !known {
			return nil
		}
		c.queue.AddAfter(o.owner, recheckAfter)
		why := &lb.RejectedError{
			Code: "server_not_reachable", Target: true,
			Message: "the server has no public IPv4 address", Remedy: lb.RemedyPublic,
		}
		if add.Target.Private {
			why.Message, why.Remedy = "the server is not attached to the network", lb.RemedyPrivate
		}
		return &opError{op: op, err: why}
	}
}

// stillWanted asks the API server itself, before a creation, whether the Services are still there
// and ask for this balancer. A cache can be older than that: a new leader may fill it from an API
// server that lags behind, and a load balancer for a Service that is gone would be left for good.
func (c *Controller) stillWanted(ctx context.Context, o *outcome) (bool, error) {
	for i, svc := range o.services {
		if o.members[i].Standing != lb.Wanted {
			continue
		}
		live, err := c.cfg.Client.Services(svc.Namespace).Get(ctx, svc.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("reading Service %s before creating its load balancer: %w", klog.KObj(svc), err)
		case live.UID != svc.UID || !c.wants(live) || c.keyOf(live) != o.owner:
			return false, nil
		}
	}
	return true, nil
}

// claimAll marks the Services that can be served as ours, see [Controller.claim]. One of which that
// fails is not served, unless it is already, and the others go on.
func (c *Controller) claimAll(ctx context.Context, o *outcome) error {
	var errs []error
	var members []lb.Member
	var services []*corev1.Service
	for i, m := range o.members {
		svc := o.services[i]
		hindered := len(m.Spec.Barred) > 0 || o.owner.Group == "" && !o.have.Exists() && len(m.Spec.Hindrances()) > 0
		if m.Standing == lb.Wanted && m.Parsed && (m.Holds || !hindered) {
			managed := m.Spec.Managed != nil
			claimed, err := c.claim(ctx, svc, managed)
			if apierrors.IsNotFound(err) && o.owner.Group == "" {
				continue
			}
			if err != nil {
				errs = append(errs, err)
				if !slices.Contains(o.have.Services(), string(svc.UID)) {
					continue
				}
				claimed = svc
			}
			svc, m.HadManaged = claimed, m.HadManaged || managed
		}
		members, services = append(members, m), append(services, svc)
	}
	o.members, o.services = members, services
	return errors.Join(errs...)
}
