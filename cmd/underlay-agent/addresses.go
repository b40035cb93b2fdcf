//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	"github.com/underlay-ccm/underlay/addresses/layer2"
	"github.com/underlay-ccm/underlay/addresses/layer2/socket"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/routes/kernel"
)

// held is the set of addresses that may receive packets, for the packet filter.
type held struct {
	// used means that there are pools of addresses.
	used bool
	addressagent.Set
}

func (h *held) filtered(d netfilter.Desired) netfilter.Desired {
	if h.used {
		d.RefuseHeld, d.Held, d.Served = true, h.All(), h.Ports()
	}
	return d
}

// holder creates the component that holds addresses.
func (o *options) holder(
	s settings, m machine, nodes addressagent.Nodes, reg promauto.Registry,
) (*addressagent.Agent, error) {
	api, err := o.restConfig()
	if err != nil {
		return nil, err
	}
	identify(api)
	client, err := addressagent.Connect(api)
	if err != nil {
		return nil, err
	}
	friends := addressagent.NewFriends(neighbors{m.network})
	return addressagent.New(addressagent.Config{
		Self: o.nodeName, Nodes: nodes,
		ConfigMaps: client.CoreV1().ConfigMaps(addressagent.LedgerNamespace),
		Patcher:    client.CoreV1().Nodes(),
		Movers:     movers(s.addresses, o.nodeName, m.network, friends),
		Friends:    friends, Held: &m.held.Set, Own: &addressagent.Set{}, Check: addressagent.HTTPCheck(),
		StatePath: o.heldPath(), Registry: reg,
	})
}

// heldBefore reports whether an earlier run had pools. While Services use their addresses, a run
// without pools must not become ready: a rollout would remove the addresses from all nodes.
func (o *options) heldBefore() bool {
	_, err := os.Stat(o.heldPath())
	return err == nil
}

func (o *options) heldPath() string { return filepath.Join(o.stateDir, addressagent.StateFile) }

// movers returns the movers of the pools and the mover that announces podCIDRs.
func movers(
	a config.Addresses, self string, network *kernel.Kernel, friends *addressagent.Friends,
) (all []addressagent.NamedMover) {
	for _, kind := range []config.Mover{
		config.Layer2, config.BGPMover, config.FloatingIP, config.Failover,
	} {
		var pools []addresses.Pool
		for _, p := range a.Pools {
			if p.Mover == kind {
				pools = append(pools, p.Pool)
			}
		}
		if len(pools) == 0 && (kind != config.BGPMover || !a.BGP.PodCIDRs) {
			continue
		}
		named := addressagent.NamedMover{
			Name: string(kind), Pools: pools, Together: kind == config.BGPMover, Routed: routed(kind),
		}
		switch kind {
		case config.Layer2, config.FloatingIP:
			responder := layer2.New(socket.Open, friends.Friend)
			named.Mover = newSegment(responder, network, kind == config.FloatingIP)
		case config.BGPMover:
			named.Mover = newRouters(self, a.BGP, pools)
		default: // Robot routes it to an address of the machine
			named.Mover = &addressagent.Passive{}
		}
		all = append(all, named)
	}
	return all
}

// routed reports whether a provider routes packets for the address to its node.
func routed(kind config.Mover) bool { return kind == config.FloatingIP || kind == config.Failover }

// led returns the pools with addresses that a provider routes to nodes.
func led(a config.Addresses) (pools []addresses.Pool) {
	for _, p := range a.Pools {
		if routed(p.Mover) {
			pools = append(pools, p.Pool)
		}
	}
	return pools
}

// holds reports whether this node runs the component that holds addresses.
func holds(a config.Addresses) bool { return a.Enabled() || a.BGP.PodCIDRs }

// printAddresses prints the ledger's addresses on this node and returns the number of problems.
func (o *options) printAddresses(
	ctx context.Context, out io.Writer, s settings, own *corev1.Node, nodes []*kube.Node, h *held,
) (trouble int, err error) {
	maps := s.client.CoreV1().ConfigMaps(addressagent.LedgerNamespace)
	stored, err := maps.List(ctx, kube.Only(addresses.LedgerName))
	if err != nil {
		return 0, fmt.Errorf("reading the ledger of addresses: %w", err)
	}
	var ledger addresses.Ledger
	for i := range stored.Items {
		text := stored.Items[i].Data[addresses.LedgerKey]
		if ledger, err = addresses.ParseLedger([]byte(text)); err != nil {
			return 0, err
		}
	}
	var mine []netip.Addr
	for _, e := range ledger.Entries() {
		if e.HeldBy(o.nodeName) {
			mine = append(mine, e.Address)
			fmt.Fprintf(out, "address %s: %s\n", e.Address, describe(e, s.addresses))
		}
	}
	h.used = s.addresses.Enabled()
	h.Put(slices.Concat(mine, addressagent.Passing(ledger, led(s.addresses), nodes)), ledger)
	if own == nil {
		return 0, nil
	}
	report, err := addresses.ParseReport(own.Annotations[addresses.ReportAnnotation])
	if err != nil {
		return 0, err
	}
	return printReport(out, report, mine), nil
}

func describe(e addresses.Entry, a config.Addresses) string {
	way := "in no pool of the configuration"
	for _, p := range a.Pools {
		if p.Contains(e.Address) {
			way = fmt.Sprintf("by %s, pool %s", p.Mover, p.Name)
		}
	}
	for _, share := range e.Shares {
		way += fmt.Sprintf(", for %s/%s", share.Namespace, share.Name)
	}
	return way
}

func printReport(out io.Writer, r addresses.Report, mine []netip.Addr) (trouble int) {
	if r.Unfit != "" {
		trouble++
		fmt.Fprintf(out, "addresses: %s\n", r.Unfit)
	}
	for _, p := range r.Refused {
		if slices.Contains(mine, p.Address) {
			trouble++
			fmt.Fprintf(out, "address %s: %s: %s\n", p.Address, p.Reason, p.Text)
		}
	}
	for _, router := range r.Routers {
		if !router.Established {
			trouble++
			fmt.Fprintf(out, "router %s: the session is %s\n", router.Name, cmp.Or(router.State, "down"))
		}
	}
	return trouble
}
