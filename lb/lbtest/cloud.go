// Package lbtest is a naive cloud of load balancers in memory, for tests of package lb and of what drives
// it. It executes ops one at a time, refuses what the real cloud refuses (ports and targets beyond the type,
// private targets without a network, no public interface under public targets), counts what it is
// asked, and prints itself. It must never be linked into a program.
//
// The refusals are those that the description of the Hetzner Cloud API lists for load balancers.
package lbtest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/underlay-ccm/underlay/lb"
)

// Zone is the network zone of every location of this cloud.
const Zone = "eu-central"

// Cloud implements lb.Backend.
type Cloud struct {
	mu        sync.Mutex
	balancers map[int64]lb.State
	protected map[int64]bool
	// certificates are by ID; their users are found out when somebody asks.
	certificates map[int64]lb.Certificate
	nextID       int64
	reads        int
	writes       []string
	// certificateFault, if set, is what a look at certificates gets.
	certificateFault error
	// fault, if set, may refuse an op before it is executed.
	fault func(lb.Op) error
}

var _ lb.Backend = (*Cloud)(nil)

// NewCloud returns a cloud with these load balancers; their IDs must be set.
func NewCloud(existing ...lb.State) *Cloud {
	c := &Cloud{
		balancers: make(map[int64]lb.State), protected: make(map[int64]bool),
		certificates: make(map[int64]lb.Certificate), nextID: 1,
	}
	for _, s := range existing {
		c.balancers[s.ID] = s
		c.nextID = max(c.nextID, s.ID+1)
	}
	return c
}

// SetFault lets f refuse ops from now on; nil ends that.
func (c *Cloud) SetFault(f func(lb.Op) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// Protect switches delete protection.
func (c *Cloud) Protect(id int64, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.protected[id] = on
}

// Edit changes a load balancer behind everybody's back.
func (c *Cloud) Edit(id int64, change func(*lb.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.balancers[id]
	change(&s)
	c.balancers[id] = s
}

// All returns every load balancer, by ID.
func (c *Cloud) All() []lb.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all()
}

func (c *Cloud) all() []lb.State {
	var all []lb.State
	for _, id := range slices.Sorted(maps.Keys(c.balancers)) {
		all = append(all, clone(c.balancers[id]))
	}
	return all
}

func clone(s lb.State) lb.State {
	s.Labels = maps.Clone(s.Labels)
	s.Listeners = slices.Clone(s.Listeners)
	s.Verdicts = maps.Clone(s.Verdicts)
	for port, verdicts := range s.Verdicts {
		s.Verdicts[port] = maps.Clone(verdicts)
	}
	s.Targets = slices.Clone(s.Targets)
	return s
}

// Verdicts finds so many of the targets healthy, so many of the next unhealthy, and has not judged the others.
func Verdicts(targets []lb.Target, healthy, unhealthy int) map[int64]lb.Verdict {
	verdicts := make(map[int64]lb.Verdict, len(targets))
	for i, t := range targets {
		switch {
		case i < healthy:
			verdicts[t.Server] = lb.Healthy
		case i < healthy+unhealthy:
			verdicts[t.Server] = lb.Unhealthy
		default:
			verdicts[t.Server] = lb.Unknown
		}
	}
	return verdicts
}

// Counts returns how often the cloud was read, and what it was told to change, since the last call.
func (c *Cloud) Counts() (reads int, writes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reads, writes = c.reads, c.writes
	c.reads, c.writes = 0, nil
	return reads, writes
}

// String prints the cloud, one load balancer a line and its parts below.
func (c *Cloud) String() string {
	var b strings.Builder
	for _, s := range c.All() {
		fmt.Fprintf(&b, "%s %s in %s, %s, public %t, network %d\n", s.Name, s.Type, s.Location, s.Algorithm, s.Public, s.Network)
		for _, l := range s.Listeners {
			fmt.Fprintf(&b, "  %s :%d → :%d %s", l.Protocol, l.Port, l.DestinationPort, l.Check)
			if l.HTTP != (lb.HTTP{}) {
				fmt.Fprintf(&b, " %+v", l.HTTP)
			}
			fmt.Fprintln(&b)
		}
		for _, t := range s.Targets {
			fmt.Fprintf(&b, "  %s\n", t)
		}
	}
	return b.String()
}

// Observe implements lb.Backend.
func (c *Cloud) Observe(ctx context.Context, owner lb.Owner) (lb.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if err := ctx.Err(); err != nil {
		return lb.State{}, err
	}
	return c.owned(owner)
}

func (c *Cloud) owned(owner lb.Owner) (lb.State, error) {
	var found lb.State
	for _, s := range c.all() {
		if !owner.Owns(s.Labels) {
			continue
		}
		if found.Exists() {
			return lb.State{}, fmt.Errorf("load balancers %d and %d: %w", found.ID, s.ID, lb.ErrAmbiguous)
		}
		found = s
	}
	return found, nil
}

// List implements lb.Backend.
func (c *Cloud) List(ctx context.Context, cluster string) ([]lb.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.all(), func(s lb.State) bool { return s.Labels[lb.LabelCluster] != cluster }), nil
}

// Apply implements lb.Backend.
func (c *Cloud) Apply(ctx context.Context, have lb.State, op lb.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, op.String())
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.fault != nil {
		if err := c.fault(op); err != nil {
			return err
		}
	}
	switch op := op.(type) {
	case lb.CreateCertificate:
		return c.createCertificate(op)
	case lb.RetryCertificate:
		return c.retryCertificate(op)
	case lb.DeleteCertificate:
		return c.deleteCertificate(op)
	case lb.Create:
		return c.create(op.Spec)
	case lb.Delete:
		if c.protected[have.ID] {
			return fmt.Errorf("load balancer %d: %w", have.ID, lb.ErrProtected)
		}
		delete(c.balancers, have.ID)
		return nil
	}
	s, ok := c.balancers[have.ID]
	if !ok {
		return fmt.Errorf("load balancer %d not found", have.ID)
	}
	if update, ok := op.(lb.Update); ok {
		if err := c.nameFree(update.Name, have.ID); err != nil {
			return err
		}
	}
	next, err := change(clone(s), op)
	if err != nil {
		return err
	}
	c.balancers[have.ID] = next
	return nil
}

func (c *Cloud) nameFree(name string, self int64) error {
	for _, s := range c.all() {
		if s.Name == name && s.ID != self {
			return fmt.Errorf("load balancer %q (%d) %w", s.Name, s.ID, lb.ErrNotOwned)
		}
	}
	return nil
}

func (c *Cloud) create(want lb.Spec) error {
	if s, err := c.owned(want.Owner); err != nil || s.Exists() {
		return err
	}
	if err := c.nameFree(want.Name, 0); err != nil {
		return err
	}
	id := c.nextID
	s := lb.State{
		ID: id, Name: want.Name, Labels: want.Labels(), Type: want.Type,
		Location: want.Location, NetworkZone: Zone, Algorithm: want.Algorithm, Public: true,
		IPv4: netip.AddrFrom4([4]byte{203, 0, 113, byte(id)}), IPv6: netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", id)),
	}
	s.IPv4Name = defaultName(s.IPv4)
	if s.Location == "" {
		s.Location = "fsn1"
	}
	var ops []lb.Op
	if want.Network != 0 {
		ops = append(ops, lb.AttachNetwork{Network: want.Network})
	}
	for _, l := range want.Listeners {
		ops = append(ops, lb.AddListener{Listener: l})
	}
	for _, t := range want.Targets {
		ops = append(ops, lb.AddTarget{Target: t})
	}
	if !want.Public {
		ops = append(ops, lb.SetPublicInterface{Enabled: false})
	}
	for _, op := range ops {
		next, err := change(s, op)
		if err != nil {
			return err
		}
		s = next
	}
	c.nextID++
	c.balancers[id] = s
	return nil
}
