// Package provider offers load balancers as a cloudprovider.LoadBalancer, the interface that upstream's
// service controller calls. It carries out the same plans as the controller beside it, for those who run
// upstream's controller.
//
// What needs more than one call's knowledge is the controller's alone: nodes with ready endpoints come first
// only there, a change of health checks is taken back only there, drift is repaired only there, and a managed certificate that is not needed any more goes at once
// only there, here with its Service. What is
// wrong with a Service is said by Events and, where nothing can be done, by the error that upstream shows.
//
// It must never write to the API server, and never report success for a Service that is refused.
package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/converge"
)

// Provider implements cloudprovider.LoadBalancer.
type Provider struct {
	converger converge.Converger
	defaults  lb.Defaults
	recorder  record.EventRecorder
}

var _ cloudprovider.LoadBalancer = (*Provider)(nil)

// New returns a provider. The cluster's name comes with each call; that of the defaults is not used.
func New(backend lb.Backend, defaults lb.Defaults, recorder record.EventRecorder) *Provider {
	return &Provider{
		converger: converge.Converger{Backend: backend, Done: func(lb.Op, converge.Result) {}},
		defaults:  defaults, recorder: recorder,
	}
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (p *Provider) GetLoadBalancer(ctx context.Context, cluster string, svc *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	have, err := p.converger.Backend.Observe(ctx, converge.Owner(svc, cluster))
	if err != nil || !have.Exists() {
		return nil, false, err
	}
	spec, _ := p.plan(cluster, svc, nil).Spec.Against(have, nil)
	status := converge.Status(spec, have)
	return &status, true, nil
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer. A refused Service has the name that it had by
// default.
func (p *Provider) GetLoadBalancerName(_ context.Context, cluster string, svc *corev1.Service) string {
	if name := p.plan(cluster, svc, nil).Spec.Name; name != "" {
		return name
	}
	return cloudprovider.DefaultLoadBalancerName(svc)
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, cluster string, svc *corev1.Service, nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	plan := p.plan(cluster, svc, nodes)
	done, err := p.converge(ctx, svc, plan)
	if err != nil {
		return nil, err
	}
	status := converge.Status(done.Spec, done.State)
	return &status, nil
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer. It makes no load balancer, but whatever else
// differs is set right with the targets: it costs nothing to see it.
func (p *Provider) UpdateLoadBalancer(ctx context.Context, cluster string, svc *corev1.Service, nodes []*corev1.Node) error {
	plan := p.plan(cluster, svc, nodes)
	have, err := p.converger.Backend.Observe(ctx, plan.Spec.Owner)
	if err != nil {
		return fmt.Errorf("looking for the load balancer: %w", err)
	}
	if !have.Exists() {
		return fmt.Errorf("the Service has no load balancer to update")
	}
	_, err = p.converge(ctx, svc, plan)
	return err
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. Nothing remembers here whether there was
// a managed certificate, so it looks.
func (p *Provider) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, svc *corev1.Service) error {
	if _, err := p.converger.Remove(ctx, converge.Owner(svc, cluster), converge.Belongings{Peers: true, Certificates: true}); err != nil {
		return fmt.Errorf("removing the load balancer: %w", err)
	}
	return nil
}

func (p *Provider) plan(cluster string, svc *corev1.Service, nodes []*corev1.Node) converge.Plan {
	defaults := p.defaults
	defaults.Cluster = cluster
	return converge.NewPlan(converge.Input{Service: svc, Nodes: nodes, Chosen: true, Defaults: defaults, Now: time.Now()})
}

// converge carries out a plan. Events tell what is not as asked for; an error, that the Service has no load
// balancer that can be shown, or that trying again helps.
func (p *Provider) converge(ctx context.Context, svc *corev1.Service, plan converge.Plan) (converge.Outcome, error) {
	done := p.converger.Converge(ctx, plan, converge.Hooks{})
	for _, n := range done.Notes {
		p.recorder.Event(svc, corev1.EventTypeWarning, n.Reason, n.Announcement())
	}
	switch {
	case done.Transient != nil:
		return done, done.Transient
	case plan.Refused, !done.State.Exists():
		return done, errors.New(lb.Join(done.Notes))
	}
	return done, nil
}
