//go:build linux

package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

var _ agent.Kernel = (*kernel.Kernel)(nil)

func open(t *testing.T) *kernel.Kernel {
	t.Helper()
	k, err := kernel.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func toward(dst, via string, link int) agent.Entry {
	return agent.Entry{
		Dst: netip.MustParsePrefix(dst), Via: netip.MustParseAddr(via),
		Kind: agent.Unicast, Link: link, Metric: agent.MetricPeer, Protocol: agent.Protocol,
	}
}

func refusing(dst string) agent.Entry {
	return agent.Entry{
		Dst:  netip.MustParsePrefix(dst),
		Kind: agent.Unreachable, Metric: agent.MetricWorst, Protocol: agent.Protocol,
	}
}

// ip runs iproute2, as an independent reader of the kernel's state.
func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func list(t *testing.T, k *kernel.Kernel) []agent.Entry {
	t.Helper()
	all, err := k.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTable(t *testing.T) {
	for _, c := range []struct {
		name, flag, own, dst, a, b string
		shown                      []string
	}{
		{"IPv4", "-4", "10.0.0.1/24", "10.244.1.0/24", "10.0.0.2", "10.0.0.3", []string{"via 10.0.0.2", "proto 201", "metric 201"}},
		{"IPv6", "-6", "fd00::1/64", "fd01:1::/64", "fd00::2", "fd00::3", []string{"via fd00::2", "proto 201", "metric 201"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			segment := kerneltest.NewSegment(t, "uplink", c.own)
			k, ctx := open(t), t.Context()
			first, second := toward(c.dst, c.a, segment.Index), toward(c.dst, c.b, segment.Index)

			if err := k.Add(ctx, []agent.Entry{first})[0]; err != nil {
				t.Fatal(err)
			}
			shown := ip(t, c.flag, "route", "show", c.dst)
			for _, want := range c.shown {
				if !strings.Contains(shown, want) {
					t.Errorf("the kernel has %q, want %q in it", shown, want)
				}
			}
			if !slices.Contains(list(t, k), first) {
				t.Errorf("not listed as it was added: %v", list(t, k))
			}
			if err := k.Add(ctx, []agent.Entry{second})[0]; !errors.Is(err, unix.EEXIST) {
				t.Errorf("adding where a route is: %v, want EEXIST", err)
			}
			if err := k.Replace(ctx, second); err != nil {
				t.Fatal(err)
			}
			if all := list(t, k); !slices.Contains(all, second) || slices.Contains(all, first) {
				t.Errorf("after replacing: %v", all)
			}
			for range 2 {
				if err := k.Delete(ctx, second); err != nil {
					t.Errorf("deleting, also what is gone: %v", err)
				}
			}
			if shown := ip(t, c.flag, "route", "show", c.dst); shown != "" {
				t.Errorf("still there: %s", shown)
			}
		})
	}
}

// Each of many routes has its own result, in the order of the entries, also if the kernel rejects
// most or all of them, for different reasons.
func TestManyRoutesAtOnce(t *testing.T) {
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	k := open(t)
	var entries []agent.Entry
	for i := range 1000 {
		entries = append(entries,
			toward(fmt.Sprintf("10.%d.%d.0/24", 64+i/256, i%256), "10.0.0.2", segment.Index),
			toward(fmt.Sprintf("fd01:%x::/64", i), "fd00::2", segment.Index))
	}
	standing := func() (n int) {
		for _, e := range list(t, k) {
			if e.Ours() {
				n++
			}
		}
		return n
	}
	if errs := k.Add(t.Context(), nil); len(errs) > 0 || standing() > 0 {
		t.Errorf("of no routes: %v, and %d stand", errs, standing())
	}
	var some []agent.Entry
	for i, e := range entries {
		if i%7 == 0 {
			some = append(some, e)
		}
	}
	for _, err := range k.Add(t.Context(), some) {
		if err != nil {
			t.Fatal(err)
		}
	}
	entries[1].Via = netip.MustParseAddr("fd02::2") // not a neighbor
	for i, err := range k.Add(t.Context(), entries) {
		switch taken := errors.Is(err, unix.EEXIST); {
		case i == 1 && (err == nil || taken), i != 1 && taken != (i%7 == 0),
			i != 1 && !taken && err != nil:
			t.Errorf("%s: %v", entries[i], err)
		}
	}
	if n := standing(); n != len(entries)-1 {
		t.Errorf("%d routes stand, want %d", n, len(entries)-1)
	}
	for i, err := range k.Add(t.Context(), entries) {
		if i != 1 && !errors.Is(err, unix.EEXIST) {
			t.Errorf("again %s: %v", entries[i], err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	free := []agent.Entry{toward("10.9.9.0/24", "10.0.0.2", segment.Index)}
	if errs := k.Add(ended, free); !errors.Is(errs[0], context.Canceled) ||
		standing() != len(entries)-1 {
		t.Errorf("after the end: %v", errs)
	}
	if errs := k.Add(t.Context(), free); errs[0] != nil {
		t.Errorf("after all that: %v", errs)
	}
}

// The library represents the IPv4 default route as one of IPv6.
func TestDefaultRoutes(t *testing.T) {
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	k := open(t)
	ip(t, "route", "add", "default", "via", "10.0.0.2", "metric", "7", "proto", "static")
	ip(t, "-6", "route", "add", "default", "via", "fd00::2", "metric", "7", "proto", "static")
	for dst, via := range map[string]string{"0.0.0.0/0": "10.0.0.2", "::/0": "fd00::2"} {
		want := toward(dst, via, segment.Index)
		want.Metric, want.Protocol = 7, 4 // RTPROT_STATIC
		if !slices.Contains(list(t, k), want) {
			t.Errorf("%s is not listed: %v", want, list(t, k))
		}
	}
}

func TestUnreachable(t *testing.T) {
	kerneltest.Need(t)
	k := open(t)
	for _, dst := range []string{"10.244.9.0/24", "fd01:9::/64"} {
		e := refusing(dst)
		if err := k.Add(t.Context(), []agent.Entry{e})[0]; err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(list(t, k), e) {
			t.Errorf("%s is not listed as it was added: %v", dst, list(t, k))
		}
		if shown := ip(t, "route", "show", dst); netip.MustParsePrefix(dst).Addr().Is4() && !strings.Contains(shown, "unreachable") {
			t.Errorf("the kernel has %q", shown)
		}
		if err := k.Delete(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// A route of another protocol is never deleted, even if all else is the same.
func TestDeleteLeavesOthersRoutes(t *testing.T) {
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	k := open(t)
	ip(t, "route", "add", "10.244.1.0/24", "via", "10.0.0.2", "metric", "201", "proto", "static")
	ip(t, "-6", "route", "add", "fd01:1::/64", "via", "fd00::2", "metric", "201", "proto", "static")
	for _, e := range []agent.Entry{toward("10.244.1.0/24", "10.0.0.2", segment.Index), toward("fd01:1::/64", "fd00::2", segment.Index)} {
		if err := k.Delete(t.Context(), e); err != nil {
			t.Error(err)
		}
		e.Protocol = 4 // RTPROT_STATIC
		if !slices.Contains(list(t, k), e) {
			t.Errorf("%s is gone", e)
		}
	}
}

func TestLinks(t *testing.T) {
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	links, err := open(t).Links(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(links, func(l agent.Link) bool { return l.Name == "uplink" })
	if at < 0 {
		t.Fatalf("uplink is not among %+v", links)
	}
	l := links[at]
	if l.Index != segment.Index || !l.Up || l.MTU != 1500 {
		t.Errorf("got %+v", l)
	}
	for _, want := range []string{"10.0.0.1/24", "fd00::1/64"} {
		if !slices.Contains(l.Addrs, netip.MustParsePrefix(want)) {
			t.Errorf("%s is not among %v", want, l.Addrs)
		}
	}
}

func TestProbeFindsTheReplyingMachine(t *testing.T) {
	for _, c := range []struct{ own, far, there, absent string }{
		{"10.0.0.1/24", "10.0.0.2/24", "10.0.0.2", "10.0.0.3"},
		{"fd00::1/64", "fd00::2/64", "fd00::2", "fd00::3"},
	} {
		t.Run(c.own, func(t *testing.T) { probe(t, c.own, c.far, c.there, c.absent) })
	}
}

func probe(t *testing.T, own, far, answers, answersNot string) {
	segment := kerneltest.NewSegment(t, "uplink", own)
	segment.Far(far)
	k := open(t)
	there, absent := netip.MustParseAddr(answers), netip.MustParseAddr(answersNot)
	for _, addr := range []netip.Addr{there, absent} {
		if err := k.Probe(t.Context(), segment.Index, addr); err != nil {
			t.Fatal(err)
		}
	}
	known := func() map[netip.Addr]bool {
		found, err := k.Neighbors(t.Context(), segment.Index)
		if err != nil {
			t.Fatal(err)
		}
		silent := map[netip.Addr]bool{}
		for _, n := range found {
			silent[n.Addr] = n.Silent
		}
		return silent
	}
	// The link may lose the first requests, and the kernel gives up after three seconds.
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true,
		func(ctx context.Context) (bool, error) {
			silent, found := known()[there]
			if silent {
				return false, k.Probe(ctx, segment.Index, there)
			}
			return found, nil
		})
	if err != nil {
		t.Errorf("%s answers and is not known to: %v", there, known())
	}
	if silent, found := known()[absent]; !found || !silent {
		t.Errorf("%s is nobody and not known to be silent: %v", absent, known())
	}
}
