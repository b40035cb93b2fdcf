//go:build linux

package packets

import (
	"errors"
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

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

const (
	// aMoment is how long an answer on the segment is waited for.
	aMoment = 500 * time.Millisecond
	// followed is how many packets of a stream may be lost until another machine has taken over
	// from one without power: fewer than until its Node counts as lost, which is after 8 s here.
	followed = 600
)

func (h *holders) answered(t *testing.T) {
	h.held(t)
	for _, addr := range h.all() {
		for _, from := range []party{{"client", h.client.Namespace}, outside(h.f)} {
			for _, network := range both() {
				if answer, err := netlab.Ask(t.Context(), from.space, network, echo(addr)); err != nil || !strings.HasPrefix(answer.Name, "web-") {
					t.Errorf("%s asked %s over %s: %+v, %v", from.name, addr, network, answer, err)
				}
			}
		}
	}
	// Traffic for policy Local only meets pods of the holder, which see who asks.
	for _, addr := range h.local {
		holder := h.holder(t, addr)
		own := family(addr, h.client.Public.IPv4, h.client.Public.IPv6)
		reaches(t, party{"client", h.client.Namespace}, echo(addr), h.web[holder.Name].Name, own, both()...)
	}
	// No address is one of a machine's interfaces, where programs of the machine would answer at it.
	for _, m := range h.machines {
		for _, addr := range h.all() {
			if out := run(t, m, "ip", "address"); strings.Contains(out, addr.String()+"/") {
				t.Errorf("%s has %s on an interface:\n%s", m.Name, addr, out)
			}
		}
	}
}

func (h *holders) sourceRanges(t *testing.T) {
	services := h.f.Client.CoreV1().Services(metav1.NamespaceDefault)
	set := func(ranges ...string) {
		s, err := services.Get(t.Context(), "local", metav1.GetOptions{})
		if err == nil {
			s.Spec.LoadBalancerSourceRanges = ranges
			_, err = services.Update(t.Context(), s, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set(h.client.Public.IPv4.String()+"/32", h.client.Public.IPv6.String()+"/128")
	for _, addr := range h.local {
		await(t, "the other host is kept out", func() string {
			if answer, err := netlab.Ask(t.Context(), h.asker.Namespace, "tcp", echo(addr)); err == nil {
				return fmt.Sprintf("%s answers it", answer.Name)
			}
			return ""
		})
		refused(t, party{"asker", h.asker.Namespace}, echo(addr), both()...)
		own := family(addr, h.client.Public.IPv4, h.client.Public.IPv6)
		reaches(t, party{"client", h.client.Namespace}, echo(addr), h.web[h.holder(t, addr).Name].Name, own, both()...)
	}
	set()
	for _, addr := range h.local {
		own := family(addr, h.asker.Public.IPv4, h.asker.Public.IPv6)
		reaches(t, party{"asker", h.asker.Namespace}, echo(addr), h.web[h.holder(t, addr).Name].Name, own, both()...)
	}
}

// unserved asks at ports of held addresses that no Service has. Without the agent's rule the holder
// would send the packet to its own gateway, or take it for itself.
func (h *holders) unserved(t *testing.T) {
	for _, addr := range h.all() {
		holder := h.holder(t, addr)
		_, err := netlab.Ask(t.Context(), h.client.Namespace, "tcp", netip.AddrPortFrom(addr, 9999))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("port 9999 of %s: %v, want it to be refused", addr, err)
		}
		in, out := counted(t, holder, addr, func() {
			_, err := netlab.Ask(t.Context(), h.client.Namespace, "udp", netip.AddrPortFrom(addr, 9999))
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("port 9999 of %s over UDP: %v, want it to be refused", addr, err)
			}
		})
		if in != 1 || out != 0 {
			t.Errorf("one packet to %s came %d times, and left %d times", addr, in, out)
		}
		// A program of the machine that listens everywhere is not reached by a Service's address.
		e, err := h.f.Serve(t.Context(), holder.Namespace, "holder", 9998)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, party{"client", h.client.Namespace}, netip.AddrPortFrom(addr, 9998), both()...)
		e.Close()
	}
}

// stranger lets a host that is none of the cluster's have an address that a Service asks for.
func (h *holders) stranger(t *testing.T) {
	taken := []netip.Addr{netip.MustParseAddr("192.0.2.109"), netip.MustParseAddr("2001:db8:1::109")}
	for _, addr := range taken {
		if err := h.asker.Claim(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
	}
	s := service("taken", corev1.ServiceExternalTrafficPolicyCluster)
	s.Annotations = map[string]string{"underlay.dev/addresses": taken[0].String() + "," + taken[1].String()}
	began := time.Now()
	if got := h.serve(t, s); !slices.Equal(got, taken) {
		t.Fatalf("the Service has %v, and asks for %v", got, taken)
	}
	for _, addr := range taken {
		await(t, "an agent says that somebody has "+addr.String(), func() string {
			for _, m := range h.machines {
				for _, p := range h.report(t, m).Refused {
					if p.Address == addr && p.Reason == addresses.InUse && p.By != "" {
						return ""
					}
				}
			}
			return "none does"
		})
		if got := h.frames.Claimants(addr, began); slices.ContainsFunc(got, func(name string) bool { return name != "asker" }) {
			t.Errorf("%s was claimed by %q, and the asker has it", addr, got)
		}
		if err := h.asker.Renounce(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
		await(t, addr.String()+" is answered when the stranger is gone", func() string {
			if _, err := netlab.Ask(t.Context(), h.client.Namespace, "tcp", echo(addr)); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	if err := h.f.Client.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "taken", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, addr := range taken {
		await(t, addr.String()+" has no holder when the Service is gone", func() string {
			if says := h.says(t, addr); len(says) > 0 {
				return fmt.Sprintf("%q hold it", says)
			}
			return ""
		})
	}
}

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
			if got := k.Stop(); got.Refused > 0 || got.Unanswered > 0 {
				t.Errorf("%s is drained: of %d connections to %s %d refused, %d not answered", m.Name, got.Made, h.all()[i], got.Refused, got.Unanswered)
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
		if err := h.web[m.Name].Report(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
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
	healed := time.Now()
	// Everybody who thinks that it has the address says so when it is asked.
	for time.Since(healed) < 3*time.Second {
		if err := h.asker.Inquire(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
		poll(t.Context(), aMoment/5, func() bool { return false })
	}
	if all := h.frames.Claimants(addr, healed.Add(time.Second)); !slices.Equal(all, []string{now.Name}) {
		t.Errorf("a second after the holder's return %q claim the address, want %s: %v", all, now.Name, h.frames.Claims(addr, healed))
	}
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

// powerOff comes last: the machine stays off.
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
