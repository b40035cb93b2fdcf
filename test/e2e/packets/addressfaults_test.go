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
	// aMoment limits the wait for a reply on the segment.
	aMoment = 500 * time.Millisecond
	// betweenHolders is how many connections may be between their first and their last packet, some
	// milliseconds, when an address moves. The new holder has no entry for them.
	betweenHolders = 2
	// followed is how many packets of a stream may be lost until another machine has taken over
	// from one without power: fewer than until its Node is marked as lost, which is after 8 s here.
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

// silentAPIServer also shows that an agent that starts without the API server continues with its
// stored state, and answers ARP.
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
	// Without the API server a manager loses its lease and exits; its Deployment restarts it.
	h.f.Manager.Kill()
	if err := h.f.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.back(t, h.machines...)
}

// back waits for machines that the control plane may have marked as lost, and sets their pods ready
// as their kubelets do, until each address has its holder.
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

// podsReady sets pods ready, as their kubelets do, until the control plane has not marked them as
// lost for a while: it may be about to.
func (h *holders) podsReady(t *testing.T) {
	t.Helper()
	since := time.Now()
	await(t, "the pods stay ready", func() string {
		for _, p := range h.web {
			now, err := h.f.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), p.Name,
				metav1.GetOptions{})
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

// moved waits until the ledger assigns an address to another machine, whose agent reports that it
// holds it.
func (h *holders) moved(
	t *testing.T, addr netip.Addr, former *netlab.Machine,
) (now *netlab.Machine) {
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

// claimedBy expects that a second from now only one machine claims an address, although it is
// resolved repeatedly: every machine that considers itself the holder would reply.
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

// withoutAPIServer disconnects a holder from the API server only. Its Node is marked as lost, and
// only the new holder's claim notifies it.
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

// proxyEnds stops the kube-proxy of a holder. The kernel keeps its rules, until another machine has
// the address.
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

// podGone deletes the pod on a holder with the policy Local, from one moment to the next.
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

// parted disconnects a holder from everything. Another one takes over; the former one, which was
// not notified, gets the segment back first, and has to detect the conflict there.
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
// the address over on their side. When the halves are reconnected, the client follows.
func (h *holders) halves(t *testing.T) {
	addr := h.cluster[0]
	former := h.holder(t, addr)
	if err := h.f.Split(t.Context(), []*netlab.Machine{former}, []*netlab.Neighbor{
		h.client,
	}); err != nil {
		t.Fatal(err)
	}
	if err := former.Cut(t.Context(), netlab.SideAPI); err != nil {
		t.Fatal(err)
	}
	now := h.moved(t, addr, former)
	// The new holder announces the address four times in two seconds. Hosts that didn't receive
	// that need a later announcement.
	moved := time.Now()
	poll(t.Context(), 2*silence, func() bool { return time.Since(moved) > 4*time.Second })
	// A host that can reach only the former holder is still served by it, as far as its pods are
	// reachable.
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
	// The client sends no request: it must receive an announcement.
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

// powerOff is the last step: the machine remains off. All of the others were unresponsive for a
// moment before.
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

// reachesAny waits until any pod replies: those of a machine without power remain endpoints until
// its Node is marked as lost.
func reachesAny(t *testing.T, from *netns.Namespace, addr netip.Addr) {
	t.Helper()
	await(t, addr.String()+" is answered", func() string {
		if _, err := netlab.Ask(t.Context(), from, "tcp", echo(addr)); err != nil {
			return err.Error()
		}
		return ""
	})
}
