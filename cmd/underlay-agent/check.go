//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/directory"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
)

const checkWithin = 30 * time.Second

// check prints what run would do now, and why. Its error contains the number of problems.
func check(ctx context.Context, o *options, out io.Writer) error {
	s, err := o.settle()
	if err != nil {
		return err
	}
	m, err := o.open()
	if err != nil {
		return err
	}
	defer m.network.Close()
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	own, nodes, err := directory.List(ctx, s.client, o.nodeName)
	if err != nil {
		return err
	}
	decision, situation, err := decide(ctx, o, s, own, nodes, m.network)
	if err == nil {
		printRoutes(out, decision, situation.Links)
		printTunnels(out, situation, time.Now())
	}
	printProxies(out, decision) // even without this machine's Node
	if err != nil {
		return err
	}
	if o.filterInbound {
		printIngress(out, decision.View)
	}
	trouble := len(decision.Faults) + len(decision.Peers())
	if holds(s.addresses) {
		if err := o.readHeld(ctx, s, nodes, m.held); err != nil {
			return err
		}
	}
	for _, fault := range decision.Faults {
		fmt.Fprintf(out, "fault: %s\n", fault)
	}
	for _, line := range decision.Warnings {
		fmt.Fprintf(out, "warning: %s\n", line)
	}
	for _, peer := range decision.Peers() {
		fmt.Fprintf(out, "unreachable: %s: %s\n", peer.Node, peer.Problem)
	}
	for _, part := range m.all() {
		trouble += printPart(ctx, out, part, decision.View)
	}
	if trouble > 0 {
		return fmt.Errorf("%d things need a person", trouble)
	}
	return nil
}

// decide reads the machine's state and decides as run does.
func decide(
	ctx context.Context, o *options, s settings, own *corev1.Node, nodes []*kube.Node,
	network *kernel.Kernel,
) (agent.Decision, agent.Situation, error) {
	situation := agent.Situation{
		Settings: s.Settings, Nodes: nodes, Unresolved: map[netip.Addr]bool{},
	}
	if own != nil {
		situation.Targets = agent.Targets(own)
	}
	if s.Tunnels.Enabled {
		devices, err := tunnels(o.keyDir, s.Tunnels.Port, s.preshared)
		if err != nil {
			return agent.Decision{}, situation, err
		}
		for i, d := range devices {
			if state := d.Observe(); i == 0 || state.Problem == "" {
				situation.Devices = append(situation.Devices, state)
			}
		}
	}
	if err := situation.Read(ctx, network); err != nil {
		return agent.Decision{}, situation, err
	}
	for _, link := range situation.Links {
		neighbors, err := network.Neighbors(ctx, link.Index)
		if err != nil {
			return agent.Decision{}, situation, err
		}
		for _, n := range neighbors {
			situation.Unresolved[n.Addr] = n.Silent
		}
	}
	decision, err := agent.Decide(situation)
	return decision, situation, err
}

// printTunnels prints the peers of the WireGuard devices.
func printTunnels(out io.Writer, s agent.Situation, now time.Time) {
	if !s.Tunnels.Enabled {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TUNNEL TO\tPORT\tENDPOINT\tHANDSHAKE\tRECEIVED\tSENT")
	for _, device := range s.Devices {
		for _, n := range s.Nodes {
			peer, found := device.Peers[n.WireGuard.Key(device.Port)]
			if !found {
				continue
			}
			handshake := "none"
			if !peer.Handshake.IsZero() {
				handshake = now.Sub(peer.Handshake).Round(time.Second).String() + " ago"
			}
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%d\t%d\n", n.Name, device.Port, peer.Endpoint, handshake,
				peer.Received, peer.Sent)
		}
	}
	_ = table.Flush()
}

func printRoutes(out io.Writer, d agent.Decision, links []agent.Link) {
	names := map[int]string{}
	for _, l := range links {
		names[l.Index] = l.Name
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ACTION\tDESTINATION\tVIA\tDEVICE\tMETRIC\tNODE\tWHY")
	for _, line := range agent.Explain(d) {
		via := "unreachable"
		if line.Entry.Via.IsValid() {
			via = line.Entry.Via.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", line.Action, line.Entry.Dst, via,
			cmp.Or(names[line.Entry.Link], "-"), line.Entry.Metric, cmp.Or(line.Node, "-"), line.Why)
	}
	_ = table.Flush()
}

// printProxies prints nothing if the agent does not manage proxy ARP.
func printProxies(out io.Writer, d agent.Decision) {
	changes := d.Changes.Lines()
	for _, line := range changes {
		fmt.Fprintf(out, "proxy ARP would change: %s\n", line)
	}
	if len(changes) == 0 && len(d.Answers) > 0 {
		fmt.Fprintf(out, "proxy ARP: as it should be, on %s\n", strings.Join(d.View.ProxyARP, ", "))
	}
}

func printIngress(out io.Writer, v agent.View) {
	for _, i := range v.Ingress {
		fmt.Fprintf(out, "open to load balancers: %v from %v\n", i.Endpoints, i.Sources)
	}
}

// printPart prints a part's changes and returns its number of problems.
func printPart(ctx context.Context, out io.Writer, p part, v agent.View) int {
	if len(v.PodCIDRs) == 0 {
		fmt.Fprintf(out, "%s: waits for the Node's podCIDRs\n", p.Name())
		return 0
	}
	changes, warnings, err := p.Plan(ctx, v)
	for _, line := range changes {
		fmt.Fprintf(out, "%s would change: %s\n", p.Name(), line)
	}
	for _, line := range warnings {
		fmt.Fprintf(out, "%s warns: %s\n", p.Name(), line)
	}
	switch {
	case err != nil:
		fmt.Fprintf(out, "%s fails: %v\n", p.Name(), err)
		return 1
	case len(changes) == 0:
		fmt.Fprintf(out, "%s: as it should be\n", p.Name())
	}
	return 0
}
