//go:build linux

package packets

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

const (
	// aMoment is how long an answer on the segment is waited for.
	aMoment = 500 * time.Millisecond
	// betweenHolders is how many connections may be between their first and their last packet, some
	// milliseconds, when an address moves. The node that it moves to knows nothing of them.
	betweenHolders = 2
	// followed is how many packets of a stream may be lost until another machine has taken over
	// from one without power: fewer than until its Node counts as lost, which is after 8 s here.
	followed = 600
)

func (h *holders) drained(t *testing.T) {
	for _, m := range h.machines {
		h.held(t)
		streams := h.streams(t)
		var knocking []*netlab.Knocking
		for _, addr := range h.all() {
			k := netlab.StartKnocking(t.Context(), h.client.Namespace, echo(addr), 2*pace)
			t.Cleanup(func() { k.Stop() })
			knocking = append(knocking, k)
		}
		h.cordon(t, m, true)
		for _, addr := range h.all() {
			await(t, m.Name+" gives "+addr.String()+" away", func() string {
				if says := h.says(t, addr); len(says) != 1 || says[0] == m.Name {
					return fmt.Sprintf("%q hold it", says)
				}
				return ""
			})
		}
		flows(t, streams, aWhile)
		lostNothing(t, streams)
		for i, k := range knocking {
			if got := k.Stop(); got.Refused > 0 || got.Unanswered > 0 || got.Broken > betweenHolders {
				t.Errorf("%s is drained: of %d connections to %s %d refused, %d broken, %d not answered", m.Name, got.Made, h.all()[i], got.Refused, got.Broken, got.Unanswered)
			}
		}
		h.cordon(t, m, false)
	}
	h.held(t)
}

func (h *holders) agentRestarts(t *testing.T) {
	holder := h.holder(t, h.cluster[0])
	streams := h.streams(t)
	holder.KillAgent()
	flows(t, streams, aWhile)
	again := func() {
		t.Helper()
		if err := holder.StartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready(t, holder)
		flows(t, streams, aWhile)
	}
	again()
	if now := h.holder(t, h.cluster[0]); now != holder {
		t.Errorf("%s has %s since the agent of %s was started again", now.Name, h.cluster[0], holder.Name)
	}
	if err := holder.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	flows(t, streams, aWhile)
	again()
	h.held(t)
	lostNothing(t, streams)
}

// silentAPIServer shows beside that an agent that starts meanwhile goes on by what it has kept, and
// answers whoever asks.
func (h *holders) silentAPIServer(t *testing.T) {
	holder := h.holder(t, h.cluster[0])
	streams := h.streams(t)
	signal := func(s syscall.Signal) {
		if err := h.f.ControlPlane.SignalAPIServer(s); err != nil {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	began := time.Now()
	poll(t.Context(), 2*silence, func() bool { return time.Since(began) > silence })
	flows(t, streams, aWhile)
	holder.KillAgent()
	if err := holder.RestartAgent(); err != nil {
		t.Fatal(err)
	}
	await(t, "an agent that starts without API server answers", func() string { return h.knownTo(t, h.asker, h.cluster[0], holder) })
	flows(t, streams, aWhile)
	lostNothing(t, streams)
	signal(syscall.SIGCONT)
	// Without the API server a manager loses its lease and ends; its Deployment starts another one.
	h.f.Manager.Kill()
	if err := h.f.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.back(t, h.machines...)
}

// back waits for machines that the control plane may have taken for lost, and lets their pods be
// ready as their kubelets do, until each address has its holder.
func (h *holders) back(t *testing.T, machines ...*netlab.Machine) {
	t.Helper()
	for _, m := range machines {
		await(t, m.Name+" is Ready", func() string {
			n, err := h.f.Client.CoreV1().Nodes().Get(t.Context(), m.Name, metav1.GetOptions{})
			switch {
			case err != nil:
				return err.Error()
			case !kube.Ready(n):
				return "its Node is not"
			}
			return ""
		})
		ready(t, m)
	}
	h.podsReady(t)
	h.held(t)
}

// podsReady reports pods as ready, as their kubelets do, until the control plane has not taken them
// for lost for a while: it may only just be getting to it.
func (h *holders) podsReady(t *testing.T) {
	t.Helper()
	since := time.Now()
	await(t, "the pods stay ready", func() string {
		for _, p := range h.web {
			now, err := h.f.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), p.Name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			is := slices.ContainsFunc(now.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if is {
				continue
			}
			since = time.Now()
			if err := p.Report(t.Context()); err != nil {
				return err.Error()
			}
		}
		if time.Since(since) < 3*time.Second {
			return "one was not a moment ago"
		}
		return ""
	})
}

// moved waits until the ledger gives an address to another machine, whose agent says that it holds
// it.
func (h *holders) moved(t *testing.T, addr netip.Addr, former *netlab.Machine) (now *netlab.Machine) {
	t.Helper()
	await(t, "another one than "+former.Name+" has "+addr.String(), func() string {
		now = h.holder(t, addr)
		if now == nil || now == former || !slices.Contains(h.says(t, addr), now.Name) {
			return fmt.Sprintf("the ledger says %v, and these hold it: %q", now, h.says(t, addr))
		}
		return ""
	})
	return now
}

// claimedBy expects that a second from now only one machine claims an address, however often it is
// asked for: everybody who thinks that it has the address says so then.
func (h *holders) claimedBy(t *testing.T, addr netip.Addr, m *netlab.Machine) {
	t.Helper()
	began := time.Now()
	for time.Since(began) < 3*time.Second {
		if err := h.asker.Inquire(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
		poll(t.Context(), aMoment/5, func() bool { return false })
	}
	if all := h.frames.Claimants(addr, began.Add(time.Second)); !slices.Equal(all, []string{m.Name}) {
		t.Errorf("a second later %q claim the address, want %s: %v", all, m.Name, h.frames.Claims(addr, began))
	}
}

// withoutAPIServer parts a holder from the API server only. Its Node is taken for lost, and it is
// told by nobody but whoever takes over.
func (h *holders) withoutAPIServer(t *testing.T) {
	addr := h.local[0]
	former := h.holder(t, addr)
	streams := h.streams(t)
	if err := former.Cut(t.Context(), netlab.SideAPI); err != nil {
		t.Fatal(err)
	}
	h.claimedBy(t, addr, h.moved(t, addr, former))
	flows(t, streams, aWhile)
	lostNothing(t, streams)
	if err := former.Heal(t.Context(), netlab.SideAPI); err != nil {
		t.Fatal(err)
	}
	h.back(t, former)
}

// proxyEnds lets the kube-proxy of a holder end. The kernel goes on by what it was told, until
// another machine has the address.
func (h *holders) proxyEnds(t *testing.T) {
	addr := h.cluster[0]
	former := h.holder(t, addr)
	streams := h.streams(t)
	former.KillProxy()
	h.moved(t, addr, former)
	flows(t, streams, aWhile)
	lostNothing(t, streams)
	if err := former.StartProxy(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.back(t, former)
}

// podGone takes the pod off a holder whose traffic is local, from one moment to the next.
func (h *holders) podGone(t *testing.T) {
	addr := h.local[0]
	former := h.holder(t, addr)
	s, err := netlab.StartStream(t.Context(), h.client.Namespace, echo(addr), pace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	flows(t, []*netlab.Stream{s}, aWhile)
	if err := h.web[former.Name].Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := h.moved(t, addr, former)
	flows(t, []*netlab.Stream{s}, aWhile)
	got := s.Stop()
	t.Logf("of %d packets %d lost, none was answered for %s", got.Sent, got.Lost, got.Gap)
	if got.Lost > followed/3 {
		t.Errorf("%d packets are lost until another pod's machine has the address, more than %d", got.Lost, followed/3)
	}
	own := family(addr, h.client.Public.IPv4, h.client.Public.IPv6)
	reaches(t, party{"client", h.client.Namespace}, echo(addr), h.web[now.Name].Name, own, both()...)
	h.web[former.Name] = runPods(t, h.f, map[string]string{"app": "web"}, [2]string{"web-again-" + former.Name, former.Name})[0]
	h.held(t)
}

// parted cuts a holder from everything. Another one takes over; the former one, which has heard of
// nothing, is given back the segment first, and has to notice there.
func (h *holders) parted(t *testing.T) {
	addr := h.local[0]
	former := h.holder(t, addr)
	if err := former.Cut(t.Context(), netlab.SideSegment, netlab.SideAPI); err != nil {
		t.Fatal(err)
	}
	await(t, "another one has the address", func() string {
		if now := h.holder(t, addr); now == former {
			return former.Name + " has it"
		}
		if _, err := netlab.Ask(t.Context(), h.client.Namespace, "tcp", echo(addr)); err != nil {
			return err.Error()
		}
		return ""
	})
	now := h.holder(t, addr)
	if err := former.Heal(t.Context(), netlab.SideSegment); err != nil {
		t.Fatal(err)
	}
	h.claimedBy(t, addr, now)
	if missing := h.knownTo(t, h.client, addr, now); missing != "" {
		t.Error(missing)
	}
	log, err := os.ReadFile(filepath.Join(h.f.ControlPlane.Dir(), "underlay-agent-"+former.Name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	var why []string
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, addr.String()) {
			why = append(why, line)
		}
	}
	t.Logf("what the former holder says of %s:\n%s", addr, strings.Join(why[max(0, len(why)-5):], ""))
	if err := former.Heal(t.Context(), netlab.SideAPI); err != nil {
		t.Fatal(err)
	}
	h.back(t, former)
}

// halves splits the segment: the holder keeps the client and loses the API server, the others take
// the address over on their side. When the halves meet, the client follows.
func (h *holders) halves(t *testing.T) {
	addr := h.cluster[0]
	former := h.holder(t, addr)
	if err := h.f.Split(t.Context(), []*netlab.Machine{former}, []*netlab.Neighbor{h.client}); err != nil {
		t.Fatal(err)
	}
	if err := former.Cut(t.Context(), netlab.SideAPI); err != nil {
		t.Fatal(err)
	}
	now := h.moved(t, addr, former)
	// The new holder says so four times in two seconds. Those who didn't hear it then must be told.
	moved := time.Now()
	poll(t.Context(), 2*silence, func() bool { return time.Since(moved) > 4*time.Second })
	// Who can only reach the former holder is served by it, as far as its pods go.
	if missing := h.knownTo(t, h.client, addr, former); missing != "" {
		t.Error(missing)
	}
	if missing := h.knownTo(t, h.asker, addr, now); missing != "" {
		t.Error(missing)
	}
	if err := h.f.Unite(t.Context()); err != nil {
		t.Fatal(err)
	}
	hardware, err := now.Hardware()
	if err != nil {
		t.Fatal(err)
	}
	// Nobody asks: the client is told.
	known := ""
	told := poll(t.Context(), 5*time.Second, func() bool {
		known, err = h.client.Knows(t.Context(), addr)
		return err == nil && known == hardware
	})
	if !told {
		t.Errorf("the client knows %q (%v), and %s is at %s", known, err, now.Name, hardware)
	}
	h.claimedBy(t, addr, now)
	if err := former.Heal(t.Context(), netlab.SideAPI); err != nil {
		t.Fatal(err)
	}
	h.back(t, former)
}

// powerOff comes last: the machine stays off. All of the others were silent once, a moment ago.
func (h *holders) powerOff(t *testing.T) {
	addr := h.local[0]
	off := h.holder(t, addr)
	s, err := netlab.StartStream(t.Context(), h.client.Namespace, echo(addr), pace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	flows(t, []*netlab.Stream{s}, aWhile)
	began := time.Now()
	if err := off.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.machines = slices.DeleteFunc(h.machines, func(m *netlab.Machine) bool { return m == off })
	await(t, "another one has the address", func() string {
		if says := h.says(t, addr); len(says) == 0 {
			return "none has"
		}
		return ""
	})
	flows(t, []*netlab.Stream{s}, aWhile)
	got := s.Stop()
	t.Logf("of %d packets %d lost, none was answered for %s", got.Sent, got.Lost, got.Gap)
	for _, f := range h.frames.Claims(addr, began) {
		t.Logf("%s after the fault: %s", f.At.Sub(began).Round(time.Millisecond), f)
	}
	if got.Lost > followed {
		t.Errorf("%d packets are lost, more than %d: the Node's silence was waited for", got.Lost, followed)
	}
	h.held(t)
	for _, a := range h.all() {
		reachesAny(t, h.client.Namespace, a)
	}
}

// reachesAny waits until any pod answers: those of a machine without power are asked until its Node
// counts as lost.
func reachesAny(t *testing.T, from *netns.Namespace, addr netip.Addr) {
	t.Helper()
	await(t, addr.String()+" is answered", func() string {
		if _, err := netlab.Ask(t.Context(), from, "tcp", echo(addr)); err != nil {
			return err.Error()
		}
		return ""
	})
}
