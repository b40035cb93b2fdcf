//go:build linux

package packets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// Services have addresses that another program assigned, and left on a machine's interface when it
// was killed. They keep them without an interruption for clients. The orphaned addresses are
// reported until they are removed.
func TestAddressesThatAnotherProgramLeft(t *testing.T) {
	l := &leftover{holders{web: map[string]*netlab.Pod{}}}
	l.f = start(t, netlab.Options{Metal: true, Machines: []string{"one", "two", "three"}})
	for _, name := range []string{"one", "two", "three"} {
		l.machines = append(l.machines, l.f.Machine(name))
		l.web[name] = runPods(t, l.f, map[string]string{"app": "web"}, [2]string{"web-" + name, name})[0]
	}
	l.plugIn(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the other program's addresses are answered", l.given},
		{"Services keep them, and nothing is lost", l.takenOver},
		{"they leave the machine that they were left on, and nothing is lost", l.drainedOf},
		{"whose kernel has an address that it should not is told", l.told},
		{"nothing is told of what is removed", l.removed},
	} {
		// Each step requires that the previous one succeeded.
		if !t.Run(step.name, step.run) {
			break
		}
	}
}

// leftover is the lab of this test. The first machine is the one that the other program ran on.
type leftover struct{ holders }

func (l *leftover) given(t *testing.T) {
	l.cluster = []netip.Addr{netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("2001:db8:1::100")}
	l.local = []netip.Addr{netip.MustParseAddr("192.0.2.101"), netip.MustParseAddr("2001:db8:1::101")}
	l.leave(t, "cluster", corev1.ServiceExternalTrafficPolicyCluster, l.cluster, map[string]string{
		"kube-vip.io/loadbalancerIPs": l.cluster[0].String() + "," + l.cluster[1].String(),
	})
	l.leave(t, "local", corev1.ServiceExternalTrafficPolicyLocal, l.local, nil)
	l.onUplink(t, "add")
	flows(t, l.streams(t), aWhile)
}

// leave creates a Service with addresses as the other program does.
func (l *leftover) leave(
	t *testing.T, name string, policy corev1.ServiceExternalTrafficPolicy, addrs []netip.Addr,
	annotations map[string]string,
) {
	t.Helper()
	s := service(name, policy)
	s.Annotations = annotations
	services := l.f.Client.CoreV1().Services(metav1.NamespaceDefault)
	s, err := services.Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
			IP: a.String(),
		})
	}
	if _, err := services.UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// onUplink adds the addresses to, or deletes them from, the first machine.
func (l *leftover) onUplink(t *testing.T, do string) {
	t.Helper()
	var lines strings.Builder
	for _, a := range l.all() {
		fmt.Fprintf(&lines, "address %s %s/%d dev uplink", do, a, a.BitLen())
		if a.Is6() && do == "add" {
			// Deprecated: otherwise the machine uses it as a source, and replies go to another
			// machine.
			lines.WriteString(" nodad preferred_lft 0")
		}
		lines.WriteString("\n")
	}
	if _, err := l.machines[0].Namespace.Feed(t.Context(), lines.String(), "ip", "-batch", "-"); err != nil {
		t.Fatal(err)
	}
}

func (l *leftover) takenOver(t *testing.T) {
	streams := l.streams(t)
	l.f.Configure("addresses:\n  pools:\n  - {name: segment, ranges: [" + poolIPv4 + ", \"" + poolIPv6 + "\"]}\n")
	if err := l.f.Manager.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-l.f.Manager.Done()
	if err := l.f.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range l.machines {
		if err := m.StopAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.StartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready(t, m)
	}
	await(t, "the agents hold all addresses", func() string {
		for _, addr := range l.all() {
			if says := l.says(t, addr); len(says) != 1 {
				return fmt.Sprintf("%q hold %s", says, addr)
			}
		}
		return ""
	})
	l.onceHeld(t)
	for name, want := range map[string][]netip.Addr{"cluster": l.cluster, "local": l.local} {
		s, err := l.f.Client.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), name,
			metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []netip.Addr
		for _, i := range s.Status.LoadBalancer.Ingress {
			got = append(got, netip.MustParseAddr(i.IP))
		}
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, want) {
			t.Errorf("Service %s has %v, want %v", name, got, want)
		}
	}
	flows(t, streams, aWhile)
	lostNothing(t, streams)
}

// onceHeld waits until each address is held by the machine in the ledger.
func (l *leftover) onceHeld(t *testing.T) {
	t.Helper()
	for _, addr := range l.all() {
		await(t, addr.String()+" has one holder", func() string {
			holder, says := l.holder(t, addr), l.says(t, addr)
			if holder == nil || !slices.Equal(says, []string{holder.Name}) {
				return fmt.Sprintf("the ledger says %v, and these hold it: %q", holder, says)
			}
			return ""
		})
	}
}

func (l *leftover) drainedOf(t *testing.T) {
	streams := l.streams(t)
	l.cordon(t, l.machines[0], true)
	for _, addr := range l.all() {
		await(t, addr.String()+" is held by another machine", func() string {
			if says := l.says(t, addr); len(says) != 1 || says[0] == "one" {
				return fmt.Sprintf("%q hold it", says)
			}
			return ""
		})
	}
	flows(t, streams, aWhile)
	lostNothing(t, streams)
}

// problem returns the problem that a machine reports about an address.
func (l *leftover) problem(t *testing.T, m *netlab.Machine, addr netip.Addr) (p addresses.Problem) {
	t.Helper()
	refused := l.report(t, m).Refused
	if i := slices.IndexFunc(refused, func(p addresses.Problem) bool {
		return p.Address == addr
	}); i >= 0 {
		p = refused[i]
	}
	return p
}

func (l *leftover) told(t *testing.T) {
	hardware, err := l.machines[0].Hardware()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range l.all() {
		await(t, addr.String()+": who else answers is told", func() string {
			p := l.problem(t, l.holder(t, addr), addr)
			if p.Reason != addresses.InUse || p.By != hardware || !strings.Contains(p.Text, "a machine of the cluster") {
				return fmt.Sprintf("%+v", p)
			}
			return ""
		})
	}
	l.cordon(t, l.machines[0], false)
	l.onceHeld(t)
}

func (l *leftover) removed(t *testing.T) {
	l.onUplink(t, "del")
	since := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, addr := range l.all() {
		for ctx.Err() == nil && l.problem(t, l.holder(t, addr), addr) != (addresses.Problem{}) {
			poll(ctx, aMoment, func() bool { return false })
		}
	}
	if ctx.Err() != nil {
		t.Fatal("it is told on")
	}
	t.Logf("told no more after %s", time.Since(since))
	l.held(t)
}
