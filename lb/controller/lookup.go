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

func (c *Controller) lookUp(ctx context.Context, in *lb.Input, o *outcome) (err error) {
	if slices.ContainsFunc(in.Members, lb.Member.NeedsCertificates) {
		in.Certificates, err = c.states.certificates(ctx, in.Owner)
		if err != nil {
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

// unreachable returns a function that refuses targets on cloud servers that are unreachable by the
// cached server list, which saves a request. The list is used only for servers that the cloud
// refused.
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
		if !ok || add.Target.Server == 0 || add.Target.Pod() ||
			slices.Contains(o.have.Targets, add.Target) || !c.backoff.wasRefused(op) {
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
		c.queue.AddAfter(o.owner, recheckAfter) // without a read, unless the list has changed
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

// stillWanted reads the Services from the API server before a creation, and reports whether they
// still request this load balancer. The cache can be older: a new leader may fill it from an API
// server that lags behind, and a load balancer for a deleted Service would never be deleted.
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
			return false,
				fmt.Errorf("reading Service %s before creating its load balancer: %w", klog.KObj(svc), err)
		case live.UID != svc.UID || !c.wants(live) || c.keyOf(live) != o.owner:
			return false, nil
		}
	}
	return true, nil
}

// claimAll claims the Services that can be served, by [Controller.claim]. A Service for which that
// fails is omitted, unless it is served already.
func (c *Controller) claimAll(ctx context.Context, o *outcome) error {
	var errs []error
	var members []lb.Member
	var services []*corev1.Service
	for i, m := range o.members {
		svc := o.services[i]
		hindered := len(m.Spec.Barred) > 0 ||
			o.owner.Group == "" && !o.have.Exists() && len(m.Spec.Hindrances()) > 0
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
