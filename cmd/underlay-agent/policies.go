//go:build linux

package main

import (
	"context"
	"time"

	"github.com/underlay-ccm/underlay/internal/netfilter"
	policyagent "github.com/underlay-ccm/underlay/policy/agent"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// policies is the part of the node's network that enforces NetworkPolicies. Its own agent sets the
// table, at every pod's start or end; here others wait for it.
type policies struct {
	table *netfilter.PolicyTable
	agent *policyagent.Agent // only in run

	waited bool // for the first decision
}

// decideWithin is how long the first pass waits for policies to be enforced. Without that, each
// restart of an agent would make its Node's condition change back and forth. Routes wait too, but
// after a restart they exist, and after a boot no pod needs them yet.
const decideWithin = 2 * time.Second

func (p *policies) Name() string { return "network policies" }

// Apply reports whether policies are enforced: until they are, no CNI configuration is written.
func (p *policies) Apply(ctx context.Context, v agent.View, _ bool) (agent.Report, error) {
	if len(v.PodCIDRs) == 0 {
		return agent.Report{}, nil
	}
	if !p.waited {
		p.waited = true
		select {
		case <-p.agent.Decided():
		case <-time.After(decideWithin):
		case <-ctx.Done():
		}
	}
	return agent.Report{}, down(p.agent.Enforced())
}

func (p *policies) Watch(ctx context.Context, changed func()) error {
	p.agent.Subscribe(changed)
	changed() // an earlier change was not notified
	<-ctx.Done()
	return nil
}

func (p *policies) Cleanup(ctx context.Context) (changed []string, err error) {
	return p.table.Apply(ctx, nil)
}
