//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/netfilter"
	policyagent "github.com/underlay-ccm/underlay/policy/agent"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// policies is the part of the node's network that enforces NetworkPolicies. Its own agent sets the
// table, at every pod's start or end; here others wait for it.
type policies struct {
	table *netfilter.PolicyTable
	agent *policyagent.Agent // only in run
}

func (p *policies) Name() string { return "network policies" }

// Apply reports whether policies are enforced: until they are, no CNI configuration is written.
func (p *policies) Apply(_ context.Context, v agent.View, _ bool) (agent.Report, error) {
	if len(v.PodCIDRs) == 0 {
		return agent.Report{}, nil
	}
	err := p.agent.Enforced()
	if errors.Is(err, netfilter.ErrDown) {
		err = fmt.Errorf("%w: %w", agent.ErrDown, err)
	}
	return agent.Report{}, err
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

// print writes whether NetworkPolicies are enforced.
func (p *policies) print(ctx context.Context, out io.Writer, s settings) error {
	found, err := s.client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("looking for NetworkPolicies: %w", err)
	}
	exists, err := p.table.Exists(ctx)
	if err != nil {
		return err
	}
	switch wanted := s.networkPolicy && len(found.Items) > 0; {
	case wanted && !exists:
		fmt.Fprintf(out, "%s would change: nftables table %s is made\n", p.Name(), netfilter.PolicyTableName)
	case !wanted && exists:
		fmt.Fprintf(out, "%s would change: nftables table %s is removed\n", p.Name(), netfilter.PolicyTableName)
	case wanted:
		fmt.Fprintf(out, "%s: enforced\n", p.Name())
	case len(found.Items) > 0:
		fmt.Fprintf(out, "%s: not enforced by this program, as the configuration says (networkPolicy: off)\n", p.Name())
	default:
		fmt.Fprintf(out, "%s: there are none\n", p.Name())
	}
	return nil
}
