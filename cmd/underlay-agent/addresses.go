//go:build linux

package main

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	"github.com/underlay-ccm/underlay/addresses/layer2"
	"github.com/underlay-ccm/underlay/addresses/layer2/socket"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
)

// held are the addresses that this node holds, which the packet filter follows.
type held struct {
	// used: there are pools of them.
	used bool
	addressagent.Set
}

// filtered adds them to what the packet filter does.
func (h *held) filtered(d netfilter.Desired) netfilter.Desired {
	if h.used {
		d.RefuseHeld, d.Held = true, h.All()
	}
	return d
}

// holder makes the part of the agent that holds addresses.
func (o *options) holder(s settings, m machine, nodes coreinformers.NodeInformer, reg agent.Registry) (*addressagent.Agent, error) {
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
		ConfigMaps: client.CoreV1().ConfigMaps(addressagent.LedgerNamespace), Patcher: client.CoreV1().Nodes(),
		Movers:  movers(s.addresses, o.nodeName, m.network, friends),
		Friends: friends, Held: &m.held.Set, Own: &addressagent.Set{}, Check: addressagent.HTTPCheck(),
		StatePath: o.heldPath(), Registry: reg,
	})
}

func (o *options) heldPath() string { return filepath.Join(o.stateDir, addressagent.StateFile) }

// movers are those that the pools name, and the one that announces podCIDRs.
func movers(a config.Addresses, self string, network *kernel.Kernel, friends *addressagent.Friends) (all []addressagent.NamedMover) {
	for _, kind := range []config.Mover{config.Layer2, config.BGPMover, config.FloatingIP, config.Failover} {
		var pools []addresses.Pool
		for _, p := range a.Pools {
			if p.Mover == kind {
				pools = append(pools, p.Pool)
			}
		}
		if len(pools) == 0 && (kind != config.BGPMover || !a.BGP.PodCIDRs) {
			continue
		}
		named := addressagent.NamedMover{Name: string(kind), Pools: pools}
		switch kind {
		case config.Layer2, config.FloatingIP:
			responder := layer2.New(layer2.Config{Open: socket.Open, Friend: friends.Friend})
			named.Mover = newSegment(responder, network, kind == config.FloatingIP)
		case config.BGPMover:
			named.Mover = newRouters(self, a.BGP, pools)
		default: // Robot routes it here, to an address that the machine has
			named.Mover = &addressagent.Passive{}
		}
		all = append(all, named)
	}
	return all
}

// holds reports whether this node has anything to do with addresses.
func holds(a config.Addresses) bool { return a.Enabled() || a.BGP.PodCIDRs }

// describe says how an address comes to this node.
func describe(e addresses.Entry, a config.Addresses) string {
	for _, p := range a.Pools {
		if p.Contains(e.Address) {
			return fmt.Sprintf("by %s, pool %s, epoch %d", p.Mover, p.Name, e.Epoch)
		}
	}
	return "in no pool of the configuration"
}

// ledgerOf reads the ledger from its ConfigMap.
func ledgerOf(stored *corev1.ConfigMap) (addresses.Ledger, error) {
	return addresses.ParseLedger([]byte(stored.Data[addressagent.LedgerKey]))
}
