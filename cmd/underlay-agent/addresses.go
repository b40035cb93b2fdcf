//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

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
	s settings, m parts, nodes addressagent.Nodes, reg promauto.Registry,
) (*addressagent.Agent, error) {
	api, err := o.restConfig()
	if err != nil {
		return nil, err
	}
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
		Friends:    friends, Held: &m.held.Set, Check: addressagent.HTTPCheck(),
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
) (all []addressagent.Mover) {
	for _, kind := range []addresses.Mover{
		addresses.Layer2, addresses.BGP, addresses.FloatingIP, addresses.Failover,
	} {
		var pools []addresses.Pool
		for _, p := range a.Pools {
			if p.Mover == kind {
				pools = append(pools, p.Pool)
			}
		}
		if len(pools) == 0 && (kind != addresses.BGP || !a.BGP.PodCIDRs) {
			continue
		}
		m := addressagent.Mover{
			Name: string(kind), Pools: pools, Together: kind == addresses.BGP, Routed: routed(kind),
		}
		switch kind {
		case addresses.Layer2, addresses.FloatingIP:
			responder := layer2.New(socket.Open, friends.Friend)
			m.Announcer = newSegment(responder, network, kind == addresses.FloatingIP)
		case addresses.BGP:
			m.Announcer = newRouters(self, a.BGP)
		default: // Robot routes it to an address of the machine
			m.Announcer = &addressagent.Passive{}
		}
		all = append(all, m)
	}
	return all
}

// routed reports whether a provider routes packets for the address to its node.
func routed(kind addresses.Mover) bool {
	return kind == addresses.FloatingIP || kind == addresses.Failover
}

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

// readHeld fills h with the addresses that the ledger leads to this node.
func (o *options) readHeld(
	ctx context.Context, s settings, nodes []*kube.Node, h *held,
) error {
	maps := s.client.CoreV1().ConfigMaps(addressagent.LedgerNamespace)
	stored, err := maps.List(ctx, kube.Only(addresses.LedgerName))
	if err != nil {
		return fmt.Errorf("reading the ledger of addresses: %w", err)
	}
	var ledger addresses.Ledger
	for i := range stored.Items {
		text := stored.Items[i].Data[addresses.LedgerKey]
		if ledger, err = addresses.ParseLedger([]byte(text)); err != nil {
			return err
		}
	}
	all := addressagent.Passing(ledger, led(s.addresses), nodes)
	for _, e := range ledger.Entries() {
		if e.HeldBy(o.nodeName) {
			all = append(all, e.Address)
		}
	}
	h.used = s.addresses.Enabled()
	h.Put(all, ledger)
	return nil
}
