//go:build linux

package netfilter

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/knftables"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// node is a network namespace with our table in it.
type node struct {
	*netns.Space
	t     *testing.T
	table *Table
	// lists counts the executions of nft that list something, and commits.
	lists *counting
}

// counting is nft with a number of failing commits.
type counting struct {
	knftables.Interface
	calls, commits, refused int
}

var errRefused = errors.New("refused")

func (c *counting) Run(ctx context.Context, tx *knftables.Transaction) error {
	if c.refused > 0 {
		c.refused--
		return errRefused
	}
	c.commits++
	return c.Interface.Run(ctx, tx)
}

func (c *counting) ListElements(
	ctx context.Context, kind, name string,
) ([]*knftables.Element, error) {
	c.calls++
	return c.Interface.ListElements(ctx, kind, name)
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Space: netns.New(t), t: t}
	n.restart()
	return n
}

// restart clears the process's state.
func (n *node) restart() {
	n.t.Helper()
	var err error
	n.Do(func() { n.table, err = New() })
	if err != nil {
		n.t.Fatal(err)
	}
	n.lists = &counting{Interface: n.table.nft}
	n.table.nft = n.lists
}

func (n *node) apply(want Desired) []string {
	n.t.Helper()
	var planned, changed, warnings []string
	var planErr, err error
	n.Do(func() {
		planned, _, planErr = n.table.Plan(n.t.Context(), want)
		changed, warnings, err = n.table.Apply(n.t.Context(), want)
	})
	if err != nil || planErr != nil || len(warnings) > 0 {
		n.t.Fatalf("Apply: %v, Plan: %v, warnings %q", err, planErr, warnings)
	}
	// The set of connections is no part of a plan.
	changed = slices.DeleteFunc(changed, func(line string) bool { return strings.HasSuffix(line, "are forgotten") })
	if !slices.Equal(planned, changed) {
		n.t.Errorf("planned %q, done %q", planned, changed)
	}
	return changed
}

func (n *node) cleanup() []string {
	n.t.Helper()
	var changed []string
	var err error
	n.Do(func() { changed, err = n.table.Cleanup(n.t.Context()) })
	if err != nil {
		n.t.Fatalf("Cleanup: %v", err)
	}
	return changed
}

// ruleset is nft's list of everything, without handles.
func (n *node) ruleset() string { return n.Run("nft", "--stateless", "list", "ruleset") }

func TestTheTableIsMadeOnceAndRestEndsInNothing(t *testing.T) {
	n := newNode(t)
	n.Run("nft", "add", "table", "inet", "foreign")
	n.Run("nft", "add", "chain", "inet", "foreign", "theirs", "{ type filter hook forward priority 0 ; }")
	before := n.ruleset()

	if changed := n.apply(dualStack()); len(changed) != 1 || !strings.Contains(changed[0], "it was missing") {
		t.Errorf("the first time: %q", changed)
	}
	made := n.ruleset()
	n.lists.calls = 0
	if changed := n.apply(dualStack()); len(changed) > 0 {
		t.Errorf("at rest: %q", changed)
	}
	if n.lists.calls > 0 {
		t.Errorf("at rest nft was run %d times", n.lists.calls)
	}
	n.restart()
	if changed := n.apply(dualStack()); len(changed) > 0 || n.ruleset() != made {
		t.Errorf("after a restart: %q", changed)
	}
	n.restart()
	if changed := n.cleanup(); len(changed) != 1 {
		t.Errorf("cleanup: %q", changed)
	}
	if after := n.ruleset(); after != before {
		t.Errorf("left after cleanup:\n%s\nbefore:\n%s", after, before)
	}
	if again := n.cleanup(); len(again) > 0 {
		t.Errorf("a second cleanup: %q", again)
	}
}

// Foreign changes are repaired by one commit, and an unchanged table is not committed again.
func TestForeignChangesAreRepaired(t *testing.T) {
	n := newNode(t)
	desired := dualStack()
	desired.Openings = openings("2001:db8:f::/64", "[2001:db8:1:0:1::7]:80", "[2001:db8:1:0:1::8]:80")
	n.apply(desired)
	want := n.ruleset()
	for _, damage := range []string{
		"flush ruleset",
		"delete table inet underlay",
		"flush table inet underlay",
		"flush chain inet underlay leaving",
		"flush set inet underlay inside-4",
		"delete element inet underlay inside-4 { 10.0.0.2/31 }",
		"add element inet underlay outer-6 { 2001:db8:ffff::/48 }",
		"add element inet underlay inside-4 { 203.0.113.1-203.0.113.6 }",
		"flush set inet underlay targets-6",
		"delete element inet underlay targets-6 { 2001:db8:f::/64 . 2001:db8:1:0:1::8 . 80 }", // listed as added
		"add element inet underlay targets-6 { 2001:db8:f::9 . 2001:db8:1:0:1::9 . 80-90 }",
		"add element inet underlay targets-6 { ::/0 . 2001:db8:1:0:1::9 . 80 }",
		"insert rule inet underlay inbound accept",
		"add rule inet underlay forwarded accept",
		"add chain inet underlay empty",
		"add chain inet underlay theirs { type filter hook input priority 0 ; }; add rule inet underlay theirs jump inbound",
		"delete chain inet underlay leaving",
		// As many rules as before, one of which differs.
		"flush chain inet underlay leaving; add rule inet underlay leaving ip saddr 10.244.1.0/24 masquerade fully-random",
		"flush chain inet underlay forwarded; add rule inet underlay forwarded ip6 daddr 2001:db8:1:0:1::/80 accept",
		// The chains have the same names, and other or no hooks.
		"add chain inet underlay forwarded { policy drop ; }",
		"add table inet underlay { flags dormant ; }",
		// A set with the same elements, with a timeout of a day.
		"flush chain inet underlay leaving; flush chain inet underlay inbound; delete set inet underlay inside-4; add set inet underlay inside-4 { type ipv4_addr ; flags interval,timeout ; }; " +
			"add element inet underlay inside-4 { 10.0.0.2/31, 10.244.0.0/23 timeout 1d }",
	} {
		n.Run("nft", damage)
		n.lists.commits = 0
		if changed := n.apply(desired); len(changed) != 1 || n.lists.commits != 1 {
			t.Errorf("%s: the repair says %q after %d commits", damage, changed, n.lists.commits)
		}
		if got := n.ruleset(); sorted(got) != sorted(want) {
			t.Errorf("%s: not repaired:\n%s", damage, got)
		}
		n.lists.commits = 0
		if changed := n.apply(desired); len(changed) > 0 || n.lists.commits > 0 {
			t.Errorf("%s: repaired twice: %q in %d commits", damage, changed, n.lists.commits)
		}
	}
}

// nft lists every rule in the form in which it is written: a process that has not created the table
// doesn't take it for altered.
func TestRulesAreShownAsWritten(t *testing.T) {
	n := newNode(t)
	for name, want := range map[string]Desired{
		"private IPv4, public IPv6": dualStack(),
		"the filter switched off":   {PodCIDRs: prefixes("10.244.1.0/24")},
		"public IPv4":               {PodCIDRs: prefixes("203.0.113.0/26"), ExternalIPs: addrs("198.51.100.7"), FilterInbound: true},
		"open to load balancers": {
			PodCIDRs: prefixes("2001:db8:1:0:1::/80"), FilterInbound: true,
			Openings: openings("2001:db8:f::2/128 2001:db8:e::/47 2001:db8:e::/64 8000::/1", "[2001:db8:1:0:1::7]:80", "[2001:db8:1:0:1::7]:65535", "[2001:db8:1::]:1"),
		},
		"open to everybody": {PodCIDRs: prefixes("2001:db8:1:0:1::/80"), FilterInbound: true, Openings: openings("::/0", "[2001:db8:1:0:1::7]:80")},
		"unique local IPv6": {PodCIDRs: prefixes("fd00:0:0:1::/64", "fd00:1:0:0:1::/80"), FilterInbound: true},
		"one address":       {PodCIDRs: prefixes("10.244.1.7/32", "2001:db8::7/128"), FilterInbound: true},
		"a tunnel":          {PodCIDRs: prefixes("10.244.1.0/24"), FilterInbound: true, Clamped: "underlay-wg", ClampedMTU: 1370},
		"many":              {PodCIDRs: prefixes("10.244.1.0/24", "10.244.9.0/25", "203.0.113.0/26", "fd00:1::/64", "2001:db8:1:0:1::/80"), FilterInbound: true},
	} {
		n.cleanup()
		n.apply(want)
		n.restart()
		if changed := n.apply(want); len(changed) > 0 || n.lists.commits > 0 {
			t.Errorf("%s: another process changes %q", name, changed)
		}
	}
}

// sorted is a ruleset independent of the order in which its chains were created.
func sorted(ruleset string) string {
	return strings.Join(slices.Sorted(strings.Lines(ruleset)), "")
}

// Many Nodes, one of which is added and removed: the set is edited, and the rules are not
// recreated.
func TestManyNodesComeAndGo(t *testing.T) {
	n := newNode(t)
	want := dualStack()
	for i := range 5000 {
		b := []byte{byte(i >> 8), byte(i)}
		want.ClusterPods = append(want.ClusterPods,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100 + b[0], b[1], 0}), 25),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0xf0, b[0], b[1], 0, 0, 1}), 80))
		want.InternalIPs = append(want.InternalIPs, netip.AddrFrom4([4]byte{10, 1, b[0], b[1]}))
	}
	began := time.Now()
	n.apply(want)
	t.Logf("made in %s", time.Since(began))
	handles := n.Run("nft", "--handle", "--terse", "list", "table", "inet", "underlay")

	n.lists.calls = 0
	less := want
	less.ClusterPods = want.ClusterPods[:len(want.ClusterPods)-2]
	for _, desired := range []Desired{less, want, less} {
		began = time.Now()
		if changed := n.apply(desired); len(changed) != 2 {
			t.Errorf("one Node: %q, want an edit of each family's set", changed)
		}
		t.Logf("edited in %s", time.Since(began))
	}
	if n.lists.calls > 0 {
		t.Errorf("nft was asked %d times for what was known", n.lists.calls)
	}
	if after := n.Run("nft", "--handle", "--terse", "list", "table", "inet", "underlay"); after != handles {
		t.Errorf("the rules were made anew:\n%s\nbefore:\n%s", after, handles)
	}
	n.restart()
	began = time.Now()
	if changed := n.apply(less); len(changed) > 0 {
		t.Errorf("after a restart: %q", changed)
	}
	t.Logf("listed and compared in %s", time.Since(began))
}

// Adjacent prefixes are merged into one element if possible, and another process finds no
// difference.
func TestNeighborsComeAndGo(t *testing.T) {
	n := newNode(t)
	two := Desired{PodCIDRs: prefixes("10.244.1.0/24"), ClusterPods: prefixes("10.244.1.0/24", "10.244.2.0/24"), InternalIPs: addrs("10.0.0.1", "10.0.0.2")}
	three := two
	three.ClusterPods, three.InternalIPs = append(prefixes("10.244.3.0/24"), two.ClusterPods...), append(addrs("10.0.0.3"), two.InternalIPs...)
	for i, want := range []Desired{two, three, two} {
		if changed := n.apply(want); len(changed) != 1 {
			t.Errorf("step %d: %q", i, changed)
		}
	}
	n.restart()
	if changed := n.apply(two); len(changed) > 0 {
		t.Errorf("another process changes %q", changed)
	}
}

// Openings are added, widened, narrowed, and removed: each time in one commit, and no rule is
// replaced, not even for the first or the last.
func TestOpeningsComeAndGo(t *testing.T) {
	n := newNode(t)
	want := dualStack()
	n.apply(want)
	handles := n.Run("nft", "--handle", "--terse", "list", "table", "inet", "underlay")
	one, two := "[2001:db8:1:0:1::7]:80", "[2001:db8:1:0:1::8]:80"
	n.lists.calls = 0
	for _, open := range [][]Opening{
		openings("2001:db8:f::2/128", one),
		openings("2001:db8:f::2/128", one, two),
		openings("2001:db8:f::2/128 2001:db8:f::/64", two, one), // the wider one replaces it
		openings("2001:db8:f::2/128 2001:db8:f::3/128", one),
		openings("2001:db8:f::4/128", one),
		nil,
	} {
		want.Openings = open
		n.lists.commits = 0
		if changed := n.apply(want); len(changed) != 1 || n.lists.commits != 1 {
			t.Errorf("%v: %q in %d commits", open, changed, n.lists.commits)
		}
		if changed := n.apply(want); len(changed) > 0 {
			t.Errorf("%v: again %q", open, changed)
		}
	}
	if n.lists.calls > 0 {
		t.Errorf("nft was asked %d times for what was known", n.lists.calls)
	}
	if after := n.Run("nft", "--handle", "--terse", "list", "table", "inet", "underlay"); after != handles {
		t.Errorf("the rules were made anew:\n%s\nbefore:\n%s", after, handles)
	}
}

// Some thousand openings, of which a pod's are added and removed.
func TestManyOpenings(t *testing.T) {
	n := newNode(t)
	want := dualStack()
	for i := range 110 {
		pod := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, 9: 1, 15: byte(i)})
		for j := range 20 {
			from := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0xf, 15: byte(2*j + 1)}),
				128)
			want.Openings = append(want.Openings, Opening{from, netip.AddrPortFrom(pod, 80)})
		}
	}
	began := time.Now()
	n.apply(want)
	t.Logf("%d openings made in %s", len(want.Openings), time.Since(began))
	less := want
	less.Openings = want.Openings[20:]
	for _, desired := range []Desired{less, want} {
		began = time.Now()
		if changed := n.apply(desired); len(changed) != 1 || !strings.Contains(changed[0], "20") {
			t.Errorf("one pod: %q", changed)
		}
		t.Logf("edited in %s", time.Since(began))
	}
	n.restart()
	if changed := n.apply(want); len(changed) > 0 {
		t.Errorf("another process changes %q", changed)
	}
}

func TestUneditableChainsAreRecreated(t *testing.T) {
	n := newNode(t)
	n.apply(dualStack())
	made := n.ruleset()
	n.Run("nft", "delete chain inet underlay leaving; add chain inet underlay leaving { type filter hook input priority 0 ; }")
	var changed []string
	var err error
	n.Do(func() { changed, _, err = n.table.Apply(t.Context(), dualStack()) })
	if got := n.ruleset(); err != nil || len(changed) != 1 || got != made {
		t.Errorf("a chain of another kind: %q, %v\n%s", changed, err, got)
	}
	want := dualStack()
	want.InternalIPs = addrs("10.0.0.2")
	n.lists.refused = 1
	n.Do(func() { changed, _, err = n.table.Apply(t.Context(), want) })
	if err != nil || len(changed) != 1 || !strings.Contains(changed[0], "it could not be changed in place") {
		t.Errorf("an edit that is refused: %q, %v", changed, err)
	}
	if rules := n.ruleset(); strings.Contains(rules, "10.0.0.2/31") || !strings.Contains(rules, "10.0.0.2") {
		t.Errorf("not as wanted:\n%s", rules)
	}
	n.lists.refused = 2
	n.Do(func() { changed, _, err = n.table.Apply(t.Context(), dualStack()) })
	if !errors.Is(err, errRefused) || len(changed) > 0 {
		t.Errorf("everything is refused: %q, %v", changed, err)
	}
	if changed := n.apply(dualStack()); len(changed) != 1 {
		t.Errorf("tried again: %q", changed)
	}
}

func TestSettingsFollow(t *testing.T) {
	n := newNode(t)
	n.apply(dualStack())
	off := dualStack()
	off.FilterInbound = false
	if changed := n.apply(off); len(changed) != 1 || strings.Contains(n.ruleset(), "drop") {
		t.Errorf("the filter switched off: %q\n%s", changed, n.ruleset())
	}
	off.PodCIDRs = off.PodCIDRs[1:] // public IPv6 only: there is nothing to do
	if changed := n.apply(off); len(changed) != 1 || strings.Contains(n.ruleset(), "underlay") {
		t.Errorf("no use for a table: %q\n%s", changed, n.ruleset())
	}
}

// Watch ignores changes of other tables, at no cost.
func TestWatchReportsOurTableOnly(t *testing.T) {
	n := newNode(t)
	n.apply(dualStack())
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 1000), make(chan error, 1)
	go n.Do(func() { ended <- n.table.Watch(ctx, func() { told <- struct{}{} }) })
	expect := func(what string) {
		t.Helper()
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing was told of %s", what)
		}
	}
	expect("the beginning")
	eventually(t, "it watches", n.table.watching.Load)
	n.apply(dualStack())

	n.lists.calls = 0
	n.Run("nft", "add table inet foreign; add chain inet foreign c; add rule inet foreign c drop; delete table inet foreign")
	if changed := n.apply(dualStack()); len(changed) > 0 || n.lists.calls > 0 || len(told) > 0 {
		t.Errorf("another table: %q changed, %d lists, %d calls", changed, n.lists.calls, len(told))
	}
	for _, damage := range []string{
		"flush table inet underlay", "add element inet underlay inside-4 { 192.0.2.0/24 }", "flush ruleset",
		"add chain inet underlay forwarded { policy drop ; }", "add table inet underlay { flags dormant ; }",
	} {
		n.Run("nft", damage)
		expect(damage)
		if changed := n.apply(dualStack()); len(changed) != 1 {
			t.Errorf("%s: the repair says %q", damage, changed)
		}
		expect("the repair")
		eventually(t, "at rest again", func() bool { return len(n.apply(dualStack())) == 0 && n.table.untouched() })
		for len(told) > 0 {
			<-told
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	n.Run("nft", "flush ruleset")
	if changed := n.apply(dualStack()); len(changed) != 1 {
		t.Errorf("after the watch nothing is trusted but the generation; changed %q", changed)
	}
}

// After an event is lost, a table counts as unchanged only once it has been listed.
func TestALostEventAndAFailedList(t *testing.T) {
	n := newNode(t)
	n.apply(dualStack())
	n.table.watching.Store(true) // by a socket that receives nothing
	n.Run("nft", "flush", "chain", "inet", "underlay", "inbound")
	n.table.lost = true
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	n.Do(func() {
		if _, _, err := n.table.Apply(t.Context(), dualStack()); err == nil {
			t.Error("a table was listed without nft")
		}
	})
	t.Setenv("PATH", path)
	if changed := n.apply(dualStack()); len(changed) != 1 {
		t.Errorf("the repair says %q", changed)
	}
}

// Where nothing else commits to nftables, our own commits are not remembered.
func TestOwnCommitsAreForgotten(t *testing.T) {
	n := newNode(t)
	want := dualStack()
	n.apply(want)
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 1), make(chan error, 1)
	go n.Do(func() { ended <- n.table.Watch(ctx, func() { told <- struct{}{} }) })
	<-told
	eventually(t, "it watches", n.table.watching.Load)
	for i := range 9 {
		want.InternalIPs = addrs([]string{"10.0.0.2", "10.0.0.9"}[i%2])
		if changed := n.apply(want); len(changed) != 1 {
			t.Errorf("edit %d: %q", i, changed)
		}
		<-told
	}
	cancel()
	if err := <-ended; err != nil || len(n.table.touched) > 1 {
		t.Errorf("%v; %d commits are remembered", err, len(n.table.touched))
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) {
			return holds(), nil
		})
	if err != nil {
		t.Fatalf("%s: never", what)
	}
}
