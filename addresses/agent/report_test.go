package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/addresses"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// The report is written when it changes, once for simultaneous changes, and again if another client
// removes it or the API server fails.
func TestTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3"))
		m.start()
		defer m.stop()
		if n := len(m.api.notified()); n > 0 {
			t.Errorf("%d reports before anything could be gathered", n)
		}
		m.after(gatherFor)
		if r := m.report(); len(r.Held) != 1 || r.Held[0].Epoch != 3 {
			t.Errorf("%+v", r)
		}
		for i := range 5 {
			m.api.put("one", ledgerText(fmt.Sprintf("192.0.2.1 a %d", 4+i)))
			m.after(gatherFor / 10)
		}
		m.after(time.Second)
		if n, r := len(m.api.notified()), m.report(); n != 2 || r.Held[0].Epoch != 8 {
			t.Errorf("%d reports, the last one %+v", n, r)
		}

		m.mover.mu.Lock()
		m.mover.refused[netip.MustParseAddr("192.0.2.1")] = addresses.InUse
		changed := m.mover.changed
		m.mover.mu.Unlock()
		m.api.mu.Lock()
		m.api.refused = 3
		m.api.mu.Unlock()
		changed()
		m.after(5 * time.Second)
		if n, r := len(m.api.notified()), m.report(); n != 3 || len(r.Held) != 0 ||
			r.Refused[0].Reason != addresses.InUse {
			t.Errorf("%d reports, the last one %+v", n, r)
		}

		// Another client removes it, and the informer observes that.
		m.node("a", "10.0.0.1", true)
		m.api.mu.Lock()
		found, _, _ := m.api.nodes.Informer().GetStore().GetByKey("a")
		found.(*corev1.Node).ResourceVersion = "1000"
		m.api.mu.Unlock()
		m.agent.reporter.look()
		m.after(time.Second)
		if n := len(m.api.notified()); n != 4 {
			t.Errorf("%d reports, want one more", n)
		}
	})
}

// Urgent changes are reported at once, and many of them not more often than every writeEvery.
func TestReportsOfManyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3"))
		m.start()
		defer m.stop()
		m.after(time.Minute)
		before := len(m.api.notified())
		for i := range 100 {
			m.api.put("one", ledgerText(fmt.Sprintf("192.0.2.1 a %d", 4+i)))
			m.after(gatherFor)
			if n := len(m.api.notified()) - before; i == 0 && n != 1 {
				t.Errorf("%d reports of the first change", n)
			}
		}
		m.after(writeEvery)
		most := int(100*gatherFor/writeEvery) + 2
		if n, r := len(m.api.notified())-before, m.report(); n > most || r.Held[0].Epoch != 103 {
			t.Errorf("%d reports, want at most %d; the last one %+v", n, most, r)
		}
	})
}

// Simultaneous reports of all nodes without an urgent change become less frequent with more nodes.
func TestReportsThatAreNotUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		for i := range 100 {
			m.node(fmt.Sprint("n", i), fmt.Sprintf("10.0.1.%d", i), true)
		}
		m.api.put("one", ledgerText("192.0.2.1 a 3"))
		m.start()
		defer m.stop()
		m.after(time.Minute)
		all := []string{"192.0.2.1 a 3"}
		for i := range 60 {
			all = append(all, fmt.Sprintf("192.0.2.%d a,b 0", i+2))
			m.api.put("one", ledgerText(all...))
			m.after(time.Second)
		}
		if n := len(m.api.notified()); n < 5 || n > 8 {
			t.Errorf("%d reports in a minute", n)
		}
		m.after(20 * time.Second)
		if r := m.report(); len(r.Held) != 61 {
			t.Errorf("%d held at last", len(r.Held))
		}
		m.api.put("one", ledgerText(append(all[:1:1], "192.0.2.2 a,b 0")...))
		m.after(time.Second)
		before := len(m.api.notified())
		m.api.put("one", ledgerText("192.0.2.1 b 4", "192.0.2.2 a,b 0"))
		m.after(2 * gatherFor)
		if r := m.report(); len(r.Held) != 1 || len(m.api.notified()) != before+1 {
			t.Errorf("what is urgent waits: %+v", r)
		}
	})
}

// A node that has never read the ledger must not replace its Node's report.
func TestNothingIsReportedInIgnorance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.closed = true
		m.start()
		defer m.stop()
		m.after(time.Minute)
		m.api.mu.Lock()
		defer m.api.mu.Unlock()
		if len(m.api.patches) > 0 {
			t.Errorf("reported %q", m.api.patches)
		}
	})
}

// An unresponsive holder is reported within about a second, and so is the node's own kube-proxy.
// One missed check isn't reported.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3", "192.0.2.2 b 1"))
		m.start()
		defer m.stop()
		m.after(time.Minute)
		const b = "10.0.0.2:10256"
		if m.proxies.checks[b] < 150 || m.proxies.checks[b] > 250 || m.proxies.checks["10.0.0.1:10256"] > 0 {
			t.Fatalf("checks in a minute: %v", m.proxies.checks)
		}
		m.proxies.hush(b, true)
		m.after(checkEvery)
		m.proxies.hush(b, false)
		m.after(time.Minute)
		if n := len(m.api.notified()); n != 1 {
			t.Fatalf("one miss: %q", m.api.notified())
		}
		m.proxies.hush(b, true)
		m.after(missesToSilent*checkEvery + gatherFor + time.Millisecond)
		if r := m.report(); len(r.Silent) != 1 || r.Silent[0] != (addresses.Endpoint{Node: "b", Port: 10256}) {
			t.Errorf("%+v", r)
		}
		m.proxies.hush(b, false)
		m.after(successesToRecover*checkEvery + gatherFor + time.Millisecond)
		if r := m.report(); len(r.Silent) != 0 {
			t.Errorf("%+v", r)
		}

		// An agent may be restarting.
		const agent = "10.0.0.2:10267"
		m.proxies.hush(agent, true)
		m.after(9 * time.Second)
		if r := m.report(); len(r.Silent) != 0 {
			t.Errorf("%+v", r)
		}
		m.after(2 * time.Second)
		if r := m.report(); len(r.Silent) != 1 || r.Silent[0].Port != addresses.AgentPort {
			t.Errorf("%+v", r)
		}
		m.proxies.hush(agent, false)
		m.after(time.Second)
		if r := m.report(); len(r.Silent) != 0 {
			t.Errorf("%+v", r)
		}

		// A kube-proxy may be restarting too: its machine responds, and forwards as before.
		for _, at := range []string{b, "127.0.0.1:10256", "10.0.0.1:10256"} {
			m.proxies.refuses(at, true)
		}
		m.after(9 * time.Second)
		if r := m.report(); len(r.Silent) != 0 || r.Unfit != "" {
			t.Errorf("%+v", r)
		}
		m.after(2 * time.Second)
		if r := m.report(); len(r.Silent) != 1 || r.Silent[0].Port != addresses.ProxyPort || r.Unfit == "" {
			t.Errorf("%+v", r)
		}
		for _, at := range []string{b, "127.0.0.1:10256", "10.0.0.1:10256"} {
			m.proxies.refuses(at, false)
		}
		m.after(time.Second)

		// The node's own kube-proxy may listen at the node's address only.
		m.proxies.hush("127.0.0.1:10256", true)
		m.after(time.Minute)
		if r := m.report(); r.Unfit != "" {
			t.Errorf("%+v", r)
		}
		m.proxies.hush("10.0.0.1:10256", true)
		m.after(2 * time.Second)
		if r := m.report(); r.Unfit == "" || len(r.Held) != 1 || len(r.Silent) != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// Checks of a node that is switched off time out, and it is unresponsive after three of them, which
// is within a second and two checks.
func TestADeadNodeIsSilentSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := make(chan struct{}, 1)
		dead := func(ctx context.Context, _ netip.AddrPort) error {
			<-ctx.Done()
			return ctx.Err()
		}
		w := newWatcher(dead, func() { silent <- struct{}{} })
		at := []netip.AddrPort{netip.AddrPortFrom(loopback(addresses.IPv4), addresses.ProxyPort)}
		began := time.Now()
		w.set(t.Context(), map[addresses.Endpoint][]netip.AddrPort{{Node: "b", Port: addresses.ProxyPort}: at})
		<-silent
		if took, most := time.Since(began), checkEvery*(missesToSilent+1); took > most {
			t.Errorf("silent after %s, want it within %s", took, most)
		}
		w.stop()
	})
}

// manyServices returns 300 ports of Services of a node, and those of its kube-proxy and its agent.
func manyServices() map[addresses.Endpoint][]netip.AddrPort {
	all := map[addresses.Endpoint][]netip.AddrPort{}
	at := func(port int) {
		all[addresses.Endpoint{Node: "b", Port: port}] = []netip.AddrPort{netip.AddrPortFrom(loopback(addresses.IPv4), uint16(port))}
	}
	for i := range 300 {
		at(30000 + i)
	}
	at(addresses.ProxyPort)
	at(addresses.AgentPort)
	return all
}

// With any number of Services with ports of their own, a node that is switched off is detected as
// fast.
func TestServicesDoNotDelayWatchesOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(func(ctx context.Context, _ netip.AddrPort) error {
			<-ctx.Done()
			return ctx.Err()
		}, func() {})
		w.set(t.Context(), manyServices())
		time.Sleep(checkEvery * (missesToSilent + 1))
		synctest.Wait()
		if !slices.Contains(w.silent(), addresses.Endpoint{Node: "b", Port: addresses.ProxyPort}) {
			t.Error("kube-proxy is not silent yet")
		}
		time.Sleep(restartWithin)
		synctest.Wait()
		if !slices.Contains(w.silent(), addresses.Endpoint{Node: "b", Port: addresses.AgentPort}) {
			t.Error("the agent is not silent yet")
		}
		w.stop()
	})
}

// Many ports of Services are checked less often each, and those of the node as often as before.
func TestWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxies{silent: map[string]bool{}, refuse: map[string]bool{}, checks: map[string]int{}}
		w := newWatcher(p.check, func() {})
		w.set(t.Context(), manyServices())
		time.Sleep(time.Minute)
		w.stop()
		total := 0
		for at, n := range p.checks {
			if port := netip.MustParseAddrPort(at).Port(); port >= 30000 {
				total += n
			} else if n < 199 || n > 201 {
				t.Errorf("%d checks of port %d in a minute", n, port)
			}
		}
		if most := int(time.Minute / checkPace * 11 / 10); total > most || len(p.checks) != 302 {
			t.Errorf("%d checks of Services in a minute, of %d ports, want at most %d", total, len(p.checks), most)
		}
	})
}

// hears reports whether a port is responsive after checks: + is a response, - a timeout, x a
// refused connection, and n a response that it does not serve.
func hears(checks string, port int) bool {
	successes := map[rune]error{
		'+': nil, '-': context.DeadlineExceeded, 'x': ErrRefused, 'n': ErrUnready,
	}
	var h probeState
	now := time.Unix(0, 0)
	for _, c := range checks {
		h = h.after(now, successes[c], port)
		now = now.Add(checkEvery)
	}
	return !h.silent
}

func TestHearing(t *testing.T) {
	long := strings.Repeat("x", int(restartWithin/checkEvery))
	for checks, want := range map[string]bool{
		"--": false, "---": true, "--+-": false, "---+": true, "---++": false, "---+-+": true, "---+-++": false, "+---": true,
		"xxxxxx": false, "xx--": false, "xx---": true, "--x--": false, "---x": true, "---x++": false,
		long: false, long + "xx": true, long + "xx+": true, long + "xx++": false, long + "+" + long: false,
	} {
		if hears(checks, addresses.ProxyPort) == want {
			t.Errorf("%s: silent %v, want %v", checks, !want, want)
		}
	}
}

// A kube-proxy that has not written the rules of a new pod yet reports no endpoint at the Service's
// port. The address must not move then, as the next node's kube-proxy is no faster. But a
// kube-proxy that is unhealthy is detected as fast as a dead one.
func TestAKubeProxyThatIsSlow(t *testing.T) {
	const service = 30999
	for _, c := range []struct {
		checks string
		port   int
		silent bool
	}{
		{strings.Repeat("n", int(restartWithin/checkEvery)), service, false},
		{strings.Repeat("n", int(restartWithin/checkEvery)) + "nn", service, true},
		{strings.Repeat("x", 2*int(restartWithin/checkEvery)), service, false},
		{strings.Repeat("n", int(restartWithin/checkEvery)) + "xnn", service, false},
		{"nnnnnn+nnnnnn", service, false},
		{"nnnnnn--", service, false},
		{"nnnnnn---", service, true},
		{"---", service, true},
		{"nnn", addresses.ProxyPort, true},
		{"nnn", addresses.AgentPort, false},
	} {
		if hears(c.checks, c.port) == c.silent {
			t.Errorf("%s at port %d: silent %v, want %v", c.checks, c.port, !c.silent, c.silent)
		}
	}
}

// Only a timely 200 response counts as healthy.
func TestHTTPCheck(t *testing.T) {
	release := make(chan struct{})
	var code atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		result := int(code.Load())
		if result == 0 {
			<-release
			return
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(result)
	}))
	defer server.Close()
	defer close(release)
	at := netip.MustParseAddrPort(strings.TrimPrefix(server.URL, "http://"))
	check := HTTPCheck()
	for _, c := range []struct {
		code int64
		want bool
	}{{200, true}, {503, false}, {302, false}, {0, false}} {
		code.Store(c.code)
		ctx, cancel := context.WithTimeout(t.Context(), checkWithin)
		began := time.Now()
		err := check(ctx, at)
		if got := err == nil; got != c.want || time.Since(began) > 2*checkWithin {
			t.Errorf("%d: %v after %s", c.code, got, time.Since(began))
		}
		if replied := c.code != 0 && !c.want; errors.Is(err, ErrUnready) != replied {
			t.Errorf("%d: %v", c.code, err)
		}
		cancel()
	}
	if err := check(t.Context(), netip.MustParseAddrPort("127.0.0.1:1")); !errors.Is(err, ErrRefused) {
		t.Errorf("a port that nobody listens on: %v", err)
	}
}
