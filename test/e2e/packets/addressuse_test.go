//go:build linux

package packets

import (
	"errors"
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
	// Traffic for policy Local reaches only pods of the holder, which observe the client's address.
	for _, addr := range h.local {
		holder := h.holder(t, addr)
		own := family(addr, h.client.Public.IPv4, h.client.Public.IPv6)
		reaches(t, party{"client", h.client.Namespace}, echo(addr), h.web[holder.Name].Name, own, both()...)
	}
	// No address is assigned to a machine's interface, where programs of the machine would listen
	// on it.
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

// unserved sends requests to ports of held addresses that no Service has. Without the agent's rule
// the holder would route the packet to its own gateway, or deliver it locally.
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
		// A program of the machine that listens on all addresses is not reachable by a Service's
		// address.
		e, err := h.f.Serve(t.Context(), holder.Namespace, "holder", 9998)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, party{"client", h.client.Namespace}, netip.AddrPortFrom(addr, 9998), both()...)
		e.Close()
	}
}

// stranger gives an address that a Service requests to a host outside of the cluster.
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
		// However often the address is resolved, only the external host replies.
		for asked := time.Now(); time.Since(asked) < 2*time.Second; {
			if err := h.client.Inquire(t.Context(), addr); err != nil {
				t.Fatal(err)
			}
			poll(t.Context(), aMoment/5, func() bool { return false })
		}
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
