package lb_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// mixed returns a mixed cluster: two cloud servers, and dedicated servers with both addresses, with
// one, and with none.
func mixed() []lb.Node {
	address := netip.MustParseAddr
	return []lb.Node{
		{Name: "bare", Private: address("10.1.0.5"), Public: address("203.0.113.5")},
		{Name: "inside", Private: address("10.1.0.6")},
		{Name: "outside", Public: address("2001:db8:6::2")},
		{Name: "nowhere"},
		{Name: "cloud-2", Server: 12},
		{Name: "cloud-1", Server: 11},
	}
}

func TestTargetsOfNodes(t *testing.T) {
	for _, c := range []struct {
		private bool
		want    string
		missing string // the nodes that the note names
	}{
		{true, "[server 11 (private) server 12 (private) IP 10.1.0.5 IP 10.1.0.6]", "nowhere and 1 more"},
		{false, "[server 11 server 12 IP 203.0.113.5 IP 2001:db8:6::2]", "inside and 1 more"},
	} {
		spec := lb.Spec{Type: "lb11", Targeting: lb.Targeting{UsePrivateIP: c.private}}.WithTargets(append(mixed(), mixed()[0]))
		if got := fmt.Sprint(spec.Targets); got != c.want {
			t.Errorf("private %t: %s, want %s", c.private, got, c.want)
		}
		spec, notes := spec.Against(lb.State{}, nil)
		if len(notes) != 1 || notes[0].Reason != lb.ReasonTargetAddressMissing ||
			notes[0].Figures != c.missing || notes[0].Grade != lb.Error {
			t.Errorf("private %t: notes %v", c.private, notes)
		}
		if text := notes[0].String(); !strings.Contains(text, "use-private-ip") || strings.Contains(text, "nowhere") {
			t.Errorf("the text must have the remedy, and be the same whichever nodes: %s", text)
		}
		for _, target := range spec.Targets {
			if target.Private != c.private {
				t.Errorf("%s is reached as private: %t", target, target.Private)
			}
		}
	}
}

// Nodes of both kinds in one Diff: the ops on targets in each plan, in order.
func TestDiffOfBothKinds(t *testing.T) {
	address := func(a string) lb.Target { return lb.AddressTarget(netip.MustParseAddr(a)) }
	private := lb.Spec{Type: "lb11", Network: 1, Public: true, Targeting: lb.Targeting{UsePrivateIP: true}}.WithTargets(mixed())
	for _, c := range []struct {
		name string
		have []lb.Target
		plan string
	}{
		{"as wanted", private.Targets, "[]"},
		{"none", nil, "[add server 11 (private) add server 12 (private) add IP 10.1.0.5 add IP 10.1.0.6]"},
		{
			"at their other addresses",
			[]lb.Target{{Server: 11}, {Server: 12, Private: true}, address("203.0.113.5"), address("10.1.0.6")},
			"[replace server 11 by server 11 (private) replace IP 203.0.113.5 by IP 10.1.0.5]",
		},
		{"at both addresses", append(slices.Clone(private.Targets), address("203.0.113.5")), "[remove IP 203.0.113.5]"},
		{
			"a server and an address of no node", append(slices.Clone(private.Targets), lb.Target{Server: 99}, address("203.0.113.99")),
			"[remove server 99 remove IP 203.0.113.99]",
		},
		{"an address that a node had before", append(slices.Clone(private.Targets[:3]), address("10.1.0.60")), "[remove IP 10.1.0.60 add IP 10.1.0.6]"},
	} {
		have := lb.State{ID: 1, Type: "lb11", Network: 1, Public: true, Targets: c.have}
		if got := onTargets(lb.Diff(private, have)); got != c.plan {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.plan)
		}
	}
}

// The type's limit counts both kinds together. Nodes with endpoints come first, then those that are
// targets, at either address.
func TestFitCountsBothKinds(t *testing.T) {
	nodes := nodesOf(upTo(20))
	for i := range byte(20) {
		nodes = append(nodes, lb.Node{
			Name: fmt.Sprint("dedicated-", i), Private: netip.AddrFrom4([4]byte{10, 1, 0, 10 + i}), Public: netip.AddrFrom4([4]byte{203, 0, 113, 10 + i}),
		})
	}
	have := lb.State{ID: 1, Type: "lb11", Targets: []lb.Target{lb.AddressTarget(nodes[39].Public), lb.AddressTarget(nodes[38].Private), {Server: 20}}}
	spec, notes := lb.Spec{Type: "lb11", Targeting: lb.Targeting{UsePrivateIP: true}}.WithTargets(nodes).Fit(have, nodes[30:36])
	if len(notes) != 1 || notes[0].Reason != lb.ReasonTargetsTruncated || notes[0].Figures != "25 of 40 nodes" {
		t.Errorf("notes %v", notes)
	}
	want := append(nodesOf(upTo(16)), nodes[19])
	want = append(append(want, nodes[30:36]...), nodes[38:]...)
	if all := (lb.Spec{
		Targeting: lb.Targeting{UsePrivateIP: true},
	}).WithTargets(want); !slices.Equal(spec.Targets, all.Targets) {
		t.Errorf("targets %v, want %v", spec.Targets, all.Targets)
	}
}

// An address that the cloud refused is left out, and the node is reached at its other address if
// other targets are.
func TestWithoutRefusedAddresses(t *testing.T) {
	refused := func(ops ...string) func(lb.Op) error {
		return func(op lb.Op) error {
			if slices.Contains(ops, op.String()) {
				return &lb.RejectedError{Code: "ip_not_owned"}
			}
			return nil
		}
	}
	spec := lb.Spec{Type: "lb11", Network: 1, Public: true, Targeting: lb.Targeting{UsePrivateIP: true}}.WithTargets(mixed())
	public := lb.AddressTarget(netip.MustParseAddr("203.0.113.5"))
	for _, c := range []struct {
		name    string
		have    []lb.Target
		refused []string
		want    string
		why     int
	}{
		{"nothing", nil, nil, "[server 11 (private) server 12 (private) IP 10.1.0.5 IP 10.1.0.6]", 0},
		{"the only address", nil, []string{"add IP 10.1.0.6"}, "[server 11 (private) server 12 (private) IP 10.1.0.5]", 1},
		{"one of two", nil, []string{"add IP 10.1.0.5"}, "[server 11 (private) server 12 (private) IP 10.1.0.6]", 1},
		{"one of two, others are public", []lb.Target{{Server: 99}}, []string{"add IP 10.1.0.5"}, "[server 11 (private) server 12 (private) IP 10.1.0.6 IP 203.0.113.5]", 1},
		{"the change to it", []lb.Target{public}, []string{"replace IP 203.0.113.5 by IP 10.1.0.5"}, "[server 11 (private) server 12 (private) IP 10.1.0.6 IP 203.0.113.5]", 1},
		{"what is there", spec.Targets, []string{"add IP 10.1.0.6"}, "[server 11 (private) server 12 (private) IP 10.1.0.5 IP 10.1.0.6]", 0},
	} {
		got, why := spec.Without(lb.State{ID: 1, Network: 1, Public: true, Targets: c.have},
			refused(c.refused...))
		if fmt.Sprint(got.Targets) != c.want || len(why) != c.why {
			t.Errorf("%s: %v, %d refusals; want %s, %d", c.name, got.Targets, len(why), c.want, c.why)
		}
	}
}

// With an invalid Service, existing targets keep their addresses, and new ones get the same kind.
func TestTargetsOfAMisreadServiceOfBothKinds(t *testing.T) {
	public := []lb.Target{{Server: 11}, lb.AddressTarget(netip.MustParseAddr("203.0.113.5"))}
	inside := []lb.Target{{Server: 11, Private: true}, lb.AddressTarget(netip.MustParseAddr("203.0.113.5"))}
	for _, c := range []struct {
		have []lb.Target
		want string
	}{
		{public, "[add server 12 add IP 2001:db8:6::2]"},
		{inside, "[add server 12 (private) add IP 10.1.0.6]"},
	} {
		plan := misread(lb.State{Type: "lb11", Public: true, Network: 1, Targets: c.have}, mixed())
		if got := onTargets(plan.Ops); got != c.want || len(plan.Notes) != 1 {
			t.Errorf("%v: %s, notes %v; want %s", c.have, got, plan.Notes, c.want)
		}
	}
}
