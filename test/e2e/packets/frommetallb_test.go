//go:build linux

package packets

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/test/testenv/metallb"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// Who follows docs/how-to/move-from-metallb.md keeps all addresses, and loses hardly a packet.
func TestMoveFromMetalLB(t *testing.T) {
	built, is, err := metallb.Built()
	if err != nil {
		t.Fatal(err)
	}
	if !is {
		t.Skipf("MetalLB %s isn't built: make bench-address builds it", built.Version)
	}
	names := []string{"one", "two", "three"}
	f := start(t, netlab.Options{Metal: true, Machines: names})
	h := &holders{f: f, web: map[string]*netlab.Pod{}}
	running, err := built.Install(t.Context(), f)
	if err == nil {
		t.Cleanup(running.Stop)
		err = running.AddPool(t.Context(), poolIPv4, poolIPv6)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		h.machines = append(h.machines, f.Machine(name))
		h.web[name] = runPods(t, f, map[string]string{"app": "web"}, [2]string{"web-" + name, name})[0]
		if err := running.StartSpeaker(t.Context(), f.Machine(name)); err != nil {
			t.Fatal(err)
		}
	}
	h.plugIn(t)
	h.cluster = h.serve(t, service("cluster", corev1.ServiceExternalTrafficPolicyCluster))
	h.local = h.serve(t, service("local", corev1.ServiceExternalTrafficPolicyLocal))
	before := h.all()
	streams := map[netip.Addr]*netlab.Stream{}
	for _, a := range before {
		await(t, a.String()+" is announced by MetalLB", func() string {
			_, err := netlab.Ask(t.Context(), h.client.Namespace, "udp", netip.AddrPortFrom(a, netlab.EchoPort))
			return text(err)
		})
		if streams[a], err = netlab.StartStream(t.Context(), h.client.Namespace, netip.AddrPortFrom(a, netlab.EchoPort), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}

	running.Stop()
	f.Configure("addresses:\n  pools:\n  - {name: segment, ranges: [" + poolIPv4 + ", \"" + poolIPv6 + "\"]}\n")
	f.Manager.Kill()
	if err := f.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range h.machines {
		if err := m.StopAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.StartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	await(t, "every address is held", func() string {
		nodes, err := f.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		missing := slices.Clone(before)
		for _, n := range nodes.Items {
			r, err := addresses.ParseReport(n.Annotations[addresses.ReportAnnotation])
			if err != nil {
				return err.Error()
			}
			for _, held := range r.Held {
				missing = slices.DeleteFunc(missing, func(a netip.Addr) bool { return a == held.Address })
			}
		}
		if len(missing) > 0 {
			return fmt.Sprintf("not held: %v", missing)
		}
		return ""
	})
	t.Logf("Held after %v", time.Since(began))
	for _, m := range h.machines {
		if err := running.Speaker(m).Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-running.Speaker(m).Done()
	}
	for _, a := range before {
		if err := h.asker.Inquire(t.Context(), a); err != nil {
			t.Errorf("nobody answers for %s without the speakers: %v", a, err)
		}
	}
	time.Sleep(2 * time.Second) // clients that know a speaker's node come to it yet
	for _, a := range before {
		traffic := streams[a].Stop()
		t.Logf("%s: %+v", a, traffic)
		if traffic.Gap > time.Second {
			t.Errorf("%s was gone for %v", a, traffic.Gap)
		}
	}
	for _, name := range []string{"cluster", "local"} {
		s, err := f.Client.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range s.Status.Conditions {
			// It may still say that a speaker answered too.
			if c.Status != metav1.ConditionTrue && c.Reason != string(addresses.InUse) {
				t.Errorf("%s: %s: %s", name, c.Reason, c.Message)
			}
		}
		for _, i := range s.Status.LoadBalancer.Ingress {
			if !slices.Contains(before, netip.MustParseAddr(i.IP)) {
				t.Errorf("%s has %s now", name, i.IP)
			}
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
