//go:build linux

package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// shelf is a component that stores the last applied value, and counts.
type shelf struct {
	name    string
	holds   int
	looked  int
	err     error
	changed func()
	journal *[]string
}

func (s *shelf) Plan(context.Context, int) (changes, warnings []string, err error) {
	return nil, nil, nil
}

func (s *shelf) Apply(_ context.Context, want int) (changed, warnings []string, err error) {
	s.looked++
	if s.err != nil {
		return nil, nil, s.err
	}
	if s.holds != want {
		s.holds = want
		changed = []string{"put"}
	}
	return changed, []string{"careful"}, nil
}

func (s *shelf) Cleanup(context.Context) ([]string, error) {
	*s.journal = append(*s.journal, s.name)
	return []string{"gone"}, s.err
}

func (s *shelf) Watch(_ context.Context, changed func()) error {
	s.changed = changed
	return nil
}

func TestAFollowerLooksWhenThereIsAReason(t *testing.T) {
	s := &shelf{}
	f := &follower[int]{edge: s, name: "shelf", desired: func(v agent.View) int { return v.MTU }}
	noticed := 0
	if err := f.Watch(t.Context(), func() { noticed++ }); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, step := range []struct {
		what     string
		before   func()
		mtu      int
		look     bool
		looks    bool
		repaired bool
		err      error
	}{
		{what: "the first time", mtu: 1500, looks: true},
		{what: "the same again", mtu: 1500},
		{what: "another view", mtu: 1400, looks: true},
		{what: "told to look", mtu: 1400, look: true, looks: true},
		{what: "altered, as it noticed", before: func() { s.holds = 7; s.changed() }, mtu: 1400, looks: true, repaired: true},
		{what: "it fails", before: func() { s.err = broken }, mtu: 1400, look: true, looks: true, err: broken},
		{what: "after a failure", before: func() { s.err = nil }, mtu: 1400, looks: true},
	} {
		if step.before != nil {
			step.before()
		}
		before := s.looked
		report, err := f.Apply(t.Context(), agent.View{MTU: step.mtu}, step.look)
		// A warning remains until the next pass.
		if warned := slices.Equal(report.Warnings, []string{"careful"}); warned != (step.err == nil) {
			t.Errorf("%s: warnings are %q", step.what, report.Warnings)
		}
		if !errors.Is(err, step.err) || (s.looked > before) != step.looks ||
			report.Repaired != step.repaired {
			t.Errorf("%s: looked %t, report %+v, error %v", step.what, s.looked > before, report, err)
		}
	}
	if noticed != 1 {
		t.Errorf("the loop was told %d times", noticed)
	}
}

// Nothing is forwarded before the filter exists, and packets to a new Node must not find a route
// while the filter treats its pods as external.
func TestTheFilterComesFirst(t *testing.T) {
	p, err := defaults().parts()
	if err != nil {
		t.Fatal(err)
	}
	var before []string
	for _, part := range p.before {
		before = append(before, part.Name())
	}
	if want := []string{"netfilter", "sysctl"}; !slices.Equal(before, want) {
		t.Errorf("put right before the routes are %v, want %v", before, want)
	}
}

// A component that needs podCIDRs is not applied for a Node without any.
func TestAPatientFollowerWaitsForPodCIDRs(t *testing.T) {
	s := &shelf{}
	f := &follower[int]{edge: s, name: "shelf", desired: func(v agent.View) int { return v.MTU }, patient: true}
	for _, v := range []agent.View{
		{MTU: 1},
		{MTU: 2, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}},
		{MTU: 3},
	} {
		if _, err := f.Apply(t.Context(), v, true); err != nil {
			t.Fatal(err)
		}
	}
	if s.holds != 2 || s.looked != 1 {
		t.Errorf("it holds %d, and was looked at %d times", s.holds, s.looked)
	}
}

// Cleanup is in reverse order, and an error doesn't stop the rest.
func TestCleanupGoesBackwards(t *testing.T) {
	var journal []string
	broken := errors.New("broken")
	shelved := func(name string, err error) part {
		return &follower[int]{edge: &shelf{name: name, err: err, journal: &journal}, name: name}
	}
	p := parts{before: []part{shelved("sysctl", nil)}, after: []part{shelved("netfilter", broken), shelved("cni", nil)}}
	routes := func(context.Context) ([]string, error) {
		journal = append(journal, "routes")
		return nil, nil
	}
	said := 0
	err := p.cleanupAll(t.Context(), routes, func(string) { said++ })
	if want := []string{"cni", "netfilter", "routes", "sysctl"}; !slices.Equal(journal, want) || !errors.Is(err, broken) || said != 3 {
		t.Errorf("went %v, want %v; said %d lines; error %v", journal, want, said, err)
	}
}

func TestSysctlsFollowTheView(t *testing.T) {
	v := agent.View{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, IPv4Uplinks: []string{"eth0"}}
	if d := sysctlsFor(v); !d.IPv4 || d.IPv6 || d.Asymmetric != nil {
		t.Errorf("one family, one uplink: %+v", d)
	}
	v.PodCIDRs = append(v.PodCIDRs, netip.MustParsePrefix("fd01:1::/64"))
	v.IPv4Uplinks = append(v.IPv4Uplinks, "eth1")
	v.ProxyARP = []string{"eth1"}
	if d := sysctlsFor(v); !d.IPv4 || !d.IPv6 || !slices.Equal(d.Asymmetric, v.IPv4Uplinks) ||
		!slices.Equal(d.ProxyARP, v.ProxyARP) {
		t.Errorf("both families, two uplinks: %+v", d)
	}
}
