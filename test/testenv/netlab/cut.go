//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Side is a network that a machine on metal is in.
type Side int

// The networks of a machine on metal.
const (
	// SideSegment is the network of pods, clients and other machines.
	SideSegment Side = iota
	// SideAPI is the network of the API server. Without it the machine's kubelet is unreachable.
	SideAPI
)

// Cut disconnects a machine on metal from networks as a fault in a switch does: its links stay up,
// no frame is forwarded, and its programs keep running.
func (m *Machine) Cut(ctx context.Context, from ...Side) error {
	for _, side := range from {
		if side == SideAPI {
			m.Silence()
		}
		if err := m.pass(ctx, side, false); err != nil {
			return err
		}
	}
	return nil
}

// Heal undoes Cut.
func (m *Machine) Heal(ctx context.Context, from ...Side) error {
	for _, side := range from {
		if err := m.pass(ctx, side, true); err != nil {
			return err
		}
		if side == SideAPI {
			if err := m.Join(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass enables or disables forwarding of frames at a machine's port of a network's bridge. The
// state of the port itself is not respected on every kernel.
func (m *Machine) pass(ctx context.Context, side Side, forward bool) error {
	f := m.lab
	if !f.options.Metal {
		return fmt.Errorf("machine %s: only machines on metal are parted from a network", m.Name)
	}
	ns, port := f.internet.ns, m.port()
	if side == SideAPI {
		ns, port = f.host, mgmt+"-"+m.port()
	}
	script := fmt.Sprintf("add table bridge cut-%[1]s\ndelete table bridge cut-%[1]s\n", port)
	if !forward {
		script += fmt.Sprintf(`table bridge cut-%[1]s {
	chain in { type filter hook prerouting priority filter; iifname %[1]q drop; }
	chain out { type filter hook postrouting priority filter; oifname %[1]q drop; }
}`, port)
	}
	if _, err := ns.Feed(ctx, script, "nft", "-f", "-"); err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return nil
}

// Split divides the segment of a lab on metal as a fault between two switches does: the given
// machines and neighbors are on one side, all others and the gateway on the other.
func (f *Lab) Split(ctx context.Context, machines []*Machine, neighbors []*Neighbor) error {
	var ports []string
	for _, m := range machines {
		ports = append(ports, strconv.Quote(m.port()))
	}
	for _, n := range neighbors {
		ports = append(ports, strconv.Quote(n.port))
	}
	script := fmt.Sprintf(`add table bridge split
delete table bridge split
table bridge split {
	set side { type ifname; elements = { %s }; }
	chain forward {
		type filter hook forward priority filter;
		iifname @side oifname != @side drop
		iifname != @side oifname @side drop
	}
	chain in { type filter hook input priority filter; iifname @side drop; }
	chain out { type filter hook output priority filter; oifname @side drop; }
}`, strings.Join(ports, ", "))
	if _, err := f.internet.ns.Feed(ctx, script, "nft", "-f", "-"); err != nil {
		return fmt.Errorf("split the segment: %w", err)
	}
	return nil
}

// Unite undoes Split.
func (f *Lab) Unite(ctx context.Context) error {
	if _, err := f.internet.ns.Run(ctx, "nft", "delete", "table", "bridge", "split"); err != nil {
		return fmt.Errorf("unite the segment: %w", err)
	}
	return nil
}

// PowerOff ends a machine on metal as a power cut does: it sends nothing more from one moment to
// the next. Its Node and the objects of its pods remain.
func (m *Machine) PowerOff(ctx context.Context) error {
	f := m.lab
	if !f.options.Metal {
		return fmt.Errorf("machine %s: only machines on metal have a plug", m.Name)
	}
	_, segment := f.internet.ns.Run(ctx, "ip", "link", "set", m.port(), "down")
	_, api := f.host.Run(ctx, "ip", "link", "set", mgmt+"-"+m.port(), "down")
	m.stop()
	return errors.Join(segment, api)
}
