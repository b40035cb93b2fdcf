//go:build linux

package packets

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

const (
	// pace is the time between two packets of a stream.
	pace = 10 * time.Millisecond
	// aWhile is a number of packets of a stream that is enough for a check.
	aWhile = 50
	// silence is how long the API server is unresponsive: longer than any of its clients waits for
	// a response, and than nodes may be unresponsive before they are marked as lost.
	silence = 30 * time.Second
)

// traffic starts a stream in each family between pods of different machines, both ways.
func (r *rack) traffic(t *testing.T) []*netlab.Stream {
	t.Helper()
	var streams []*netlab.Stream
	begin := func(from, to *netlab.Pod) {
		for _, addr := range to.Addrs() {
			s, err := netlab.StartStream(t.Context(), from.Namespace, echo(addr), pace)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Stop() })
			streams = append(streams, s)
		}
	}
	begin(r.pods[0], r.pods[2])
	begin(r.pods[2], r.pods[0])
	flows(t, streams, aWhile)
	return streams
}

// flows waits until each stream has got so many more replies.
func flows(t *testing.T, streams []*netlab.Stream, packets int) {
	t.Helper()
	for i, s := range streams {
		until := s.Answered() + packets
		await(t, fmt.Sprintf("stream %d flows", i), func() string {
			if now := s.Answered(); now < until {
				return fmt.Sprintf("%d packets answered, %d awaited", now, until)
			}
			return ""
		})
	}
}

// unhurt ends streams and expects no loss.
func unhurt(t *testing.T, streams []*netlab.Stream) {
	t.Helper()
	for i, s := range streams {
		if got := s.Stop(); got.Lost > 0 || got.Repeated > 0 || len(got.Sources) != 1 {
			t.Errorf("stream %d: of %d packets %d lost, %d repeated, from %v; longest gap %s at %s", i, got.Sent, got.Lost, got.Repeated, got.Sources, got.Gap, got.GapAt.Format("15:04:05.000"))
		}
	}
}

func ready(t *testing.T, m *netlab.Machine) {
	t.Helper()
	if err := m.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (r *rack) restarted(t *testing.T, m *netlab.Machine) {
	t.Helper()
	if err := m.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready(t, m)
}

func (r *rack) agentRestarts(t *testing.T) {
	streams := r.traffic(t)
	r.one.KillAgent()
	flows(t, streams, aWhile)
	r.restarted(t, r.one)
	flows(t, streams, aWhile)
	if err := r.one.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	flows(t, streams, aWhile)
	r.restarted(t, r.one)
	flows(t, streams, aWhile)
	unhurt(t, streams)
}

// silentAPIServer also shows that an agent repairs its machine from its cache.
func (r *rack) silentAPIServer(t *testing.T) {
	want := ourRoutes(t, r.one)
	streams := r.traffic(t)
	signal := func(s syscall.Signal) {
		if err := r.f.ControlPlane.SignalAPIServer(s); err != nil {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	began := time.Now()
	poll(t.Context(), 2*silence, func() bool { return time.Since(began) > silence })
	flows(t, streams, aWhile)
	unhurt(t, streams)
	run(t, r.one, "ip", "route", "flush", "proto", "201")
	routesAre(t, r.one, want)
	signal(syscall.SIGCONT)
	// Without the API server a manager loses its lease and exits; its Deployment restarts it.
	r.f.Manager.Kill()
	if err := r.f.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.machines() {
		ready(t, m)
	}
	everyPodReachesEveryPod(t, r.pods)
}

func (r *rack) managerGone(t *testing.T) {
	streams := r.traffic(t)
	r.f.Manager.Kill()
	flows(t, streams, aWhile)
	if err := r.f.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the new manager is healthy", func() string {
		if status, says := r.f.Manager.Health(t.Context()); status != 200 {
			return fmt.Sprint(status, " ", says)
		}
		return ""
	})
	flows(t, streams, aWhile)
	unhurt(t, streams)
}

func (r *rack) flushedRoutes(t *testing.T) {
	want := ourRoutes(t, r.one)
	run(t, r.one, "ip", "route", "flush", "proto", "201")
	run(t, r.one, "ip", "-6", "route", "flush", "proto", "201")
	routesAre(t, r.one, want)
	everyPodReachesEveryPod(t, r.pods)
}

func (r *rack) flushedFilter(t *testing.T) {
	want := run(t, r.one, "nft", "list", "table", "inet", "underlay")
	same := func() string {
		if now, err := r.one.Namespace.Run(t.Context(), "nft", "list", "table", "inet", "underlay"); err != nil || now != want {
			return fmt.Sprintf("%v: the table is\n%s\nwant\n%s", err, now, want)
		}
		return ""
	}
	run(t, r.one, "nft", "flush", "table", "inet", "underlay")
	await(t, "the rules are back", same)
	run(t, r.one, "nft", "delete", "table", "inet", "underlay")
	await(t, "the table is back", same)
	r.outside(t)
}

func (r *rack) linkDown(t *testing.T) {
	want := ourRoutes(t, r.one)
	if err := r.one.SetUplink(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if left := ourRoutes(t, r.one); left == want {
		t.Fatalf("the link is down, and took no route away:\n%s", left)
	}
	refused(t, of(r.pods[0]), echo(r.pods[2].IPv4), "tcp")
	if err := r.one.SetUplink(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	routesAre(t, r.one, want)
	everyPodReachesEveryPod(t, r.pods)
}

// nextHop routes to a machine by its other addresses, and back.
func (r *rack) nextHop(t *testing.T) {
	others := []netip.Addr{netip.MustParseAddr("192.0.2.112"), netip.MustParseAddr("2001:db8:1::112")}
	run(t, r.two, "ip", "address", "add", others[0].String()+"/24", "dev", "uplink")
	run(t, r.two, "ip", "address", "add", others[1].String()+"/64", "dev", "uplink", "nodad")
	streams := r.traffic(t)
	for _, addrs := range [][]netip.Addr{others, r.two.InternalIPs()} {
		if err := kubelet.Report(t.Context(), r.f.Client, r.two.Name, addrs); err != nil {
			t.Fatal(err)
		}
		for _, dst := range podCIDRs(t, r.f, r.two.Name) {
			leadsTo(t, r.one, dst, family(dst.Addr(), addrs[0], addrs[1]))
		}
		flows(t, streams, aWhile)
	}
	unhurt(t, streams)
	run(t, r.two, "ip", "address", "del", others[0].String()+"/24", "dev", "uplink")
	run(t, r.two, "ip", "address", "del", others[1].String()+"/64", "dev", "uplink")
	if err := r.two.RestartProxy(t.Context()); err != nil { // see swapped below
		t.Fatal(err)
	}
	ready(t, r.two)
}

func (r *rack) swapped(t *testing.T) {
	a, b := r.two, r.three
	for _, m := range []*netlab.Machine{a, b} {
		if err := m.SetUplink(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	publicA, publicB := a.Public, b.Public
	for m, addrs := range map[*netlab.Machine]netlab.Public{a: publicB, b: publicA} {
		if err := m.Readdress(t.Context(), addrs); err != nil {
			t.Fatal(err)
		}
		if err := m.SetUplink(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []*netlab.Machine{a, b} {
		for _, dst := range podCIDRs(t, r.f, m.Name) {
			leadsTo(t, r.one, dst, family(dst.Addr(), m.Public.IPv4, m.Public.IPv6))
		}
		// kube-proxy exits when its Node gets other addresses; a kubelet restarts it.
		if err := m.RestartProxy(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready(t, m)
	}
	everyPodReachesEveryPod(t, r.pods)
	r.outside(t)
}

func (r *rack) deletedMeanwhile(t *testing.T) {
	gone := podCIDRs(t, r.f, r.three.Name)
	last := len(r.pods) - 1
	if err := r.pods[last].Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.pods = r.pods[:last]
	for _, m := range r.machines() {
		m.KillAgent()
	}
	r.three.Silence()
	if err := r.f.Client.CoreV1().Nodes().Delete(t.Context(), r.three.Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*netlab.Machine{r.one, r.two} {
		if before := ourRoutes(t, m); !strings.Contains(before, gone[0].String()) {
			t.Fatalf("%s has no route to %s, and nobody took it away:\n%s", m.Name, gone[0], before)
		}
		r.restarted(t, m)
		await(t, m.Name+" has no route to the Node that is gone", func() string {
			now := ourRoutes(t, m)
			for _, dst := range gone {
				if strings.Contains(now, dst.String()) {
					return now
				}
			}
			return ""
		})
	}
	everyPodReachesEveryPod(t, r.pods)
}

func (r *rack) otherPodCIDRs(t *testing.T) {
	streams := r.traffic(t)
	if err := r.three.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the Node has podCIDRs", func() string {
		if got := podCIDRs(t, r.f, r.three.Name); len(got) != 2 {
			return fmt.Sprint(got)
		}
		return ""
	})
	// Both ended with the Node that they belonged to, as pods do.
	if err := r.three.RestartProxy(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.restarted(t, r.three)
	for _, dst := range podCIDRs(t, r.f, r.three.Name) {
		leadsTo(t, r.one, dst, family(dst.Addr(), r.three.Public.IPv4, r.three.Public.IPv6))
	}
	p := runPods(t, r.f, nil, [2]string{"pod-three-again", "three"})[0]
	if own := podCIDRs(t, r.f, "three"); !own[0].Contains(p.IPv4) || !own[1].Contains(p.IPv6) {
		t.Errorf("the pod has %s and %s, its Node %v", p.IPv4, p.IPv6, own)
	}
	r.pods = append(r.pods, p)
	everyPodReachesEveryPod(t, r.pods)
	unhurt(t, streams)
}

// lossyAPIServer joins the fourth machine while every third packet between the first and the API
// server is lost.
func (r *rack) lossyAPIServer(t *testing.T) {
	const loss = `table inet loss {
	chain in { type filter hook input priority filter; iifname "mgmt" numgen random mod 100 < 30 drop; }
	chain out { type filter hook output priority filter; oifname "mgmt" numgen random mod 100 < 30 drop; }
}`
	if _, err := r.one.Namespace.Feed(t.Context(), loss, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = r.one.Namespace.Run(context.WithoutCancel(t.Context()), "nft", "delete", "table", "inet", "loss")
	})
	four, err := r.f.Rent(t.Context(), "four")
	if err != nil {
		t.Fatal(err)
	}
	r.bare = state(t, four)
	if err := four.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.restarted(t, four)
	p := runPods(t, r.f, nil, [2]string{"pod-four", "four"})[0]
	everyPodReachesEveryPod(t, []*netlab.Pod{r.pods[0], p})
	if err := p.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}
