//go:build linux

package packets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// On bare metal both families use kernel routes from machine to machine, and there is no cloud.
func TestPodsOnBareMetal(t *testing.T) {
	f := start(t, netlab.Options{
		Metal: true, Machines: []string{"one", "two", "three"},
		ManagerArgs: []string{"--node-status-update-frequency=1s"}, // or a changed address takes minutes
	})
	r := &rack{f: f, one: f.Machine("one"), two: f.Machine("two"), three: f.Machine("three")}
	answerEverywhere(t, f, r.one, r.two, r.three)
	r.pods = slices.Concat(
		runPods(t, f, map[string]string{"app": "client"}, [2]string{"pod-one", "one"}, [2]string{"neighbor", "one"}),
		runPods(t, f, map[string]string{"app": "server"}, [2]string{"pod-two", "two"}, [2]string{"pod-three", "three"}))
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"every pod reaches every pod", func(t *testing.T) { everyPodReachesEveryPod(t, r.pods) }},
		{"pods and nodes reach each other", r.nodes},
		{"a Service is reached by its ClusterIP", func(t *testing.T) { clusterIPs(t, f, r.pods[:1], r.pods[2:]) }},
		{"pods reach the outside under their node's addresses", r.outside},
		{"a packet to an address without a pod arrives once", r.unused},
		{"an agent's death and its upgrade lose no packet", r.agentRestarts},
		{"a silent API server loses no packet", r.silentAPIServer},
		{"a manager that is gone loses no packet", r.managerGone},
		{"flushed routes come back", r.flushedRoutes},
		{"a flushed packet filter comes back", r.flushedFilter},
		{"routes come back with the link", r.linkDown},
		{"a changed next hop loses no packet", r.nextHop},
		{"two nodes swap addresses", r.swapped},
		{"a Node that was deleted meanwhile loses its routes", r.deletedMeanwhile},
		{"a Node comes back with other podCIDRs", r.otherPodCIDRs},
		{"a joining machine is reached though packets to the API server are lost", r.lossyAPIServer},
		{"cleanup leaves a machine as it was", r.cleanup},
	} {
		// Each step requires that the previous one succeeded.
		if !t.Run(step.name, step.run) {
			break
		}
	}
	if asked := f.Cloud.Requests(); len(asked) > 0 {
		t.Errorf("a cloud was asked %d times, first %s %s", len(asked), asked[0].Method, asked[0].Path)
	}
}

// rack is the lab of these tests.
type rack struct {
	f               *netlab.Lab
	one, two, three *netlab.Machine
	pods            []*netlab.Pod // the last one is on three

	bare string // state of the machine four before it joined
}

func (r *rack) machines() []*netlab.Machine { return []*netlab.Machine{r.one, r.two, r.three} }

func (r *rack) nodes(t *testing.T) {
	for _, p := range r.pods {
		for _, m := range r.machines() {
			reaches(t, of(p), ownPort(m.Public.IPv4), m.Name, p.IPv4, "tcp")
			reaches(t, of(p), ownPort(m.Public.IPv6), m.Name, p.IPv6, "tcp")
			if m == p.Machine {
				continue // its source would be an address of the pod's own interface
			}
			reaches(t, machine(m), echo(p.IPv4), p.Name, m.Public.IPv4, both()...)
			reaches(t, machine(m), echo(p.IPv6), p.Name, m.Public.IPv6, both()...)
		}
	}
}

func (r *rack) outside(t *testing.T) {
	for _, p := range r.pods {
		reaches(t, of(p), ownPort(netlab.OutsideIPv4), "outside", p.Machine.Public.IPv4, both()...)
		reaches(t, of(p), ownPort(netlab.OutsideIPv6), "outside", p.Machine.Public.IPv6, both()...)
	}
}

// unused sends one packet to an address that is in a node's podCIDR and has no pod. Without an
// unreachable route the node would forward it to its own gateway, which returns it until the hop
// limit is reached.
func (r *rack) unused(t *testing.T) {
	for _, cidr := range podCIDRs(t, r.f, r.two.Name) {
		nobody := cidr.Addr()
		for range 99 {
			nobody = nobody.Next()
		}
		in, out := counted(t, r.two, nobody, func() {
			// No reply is expected: the packet has traveled as far as it can before it is counted.
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if answer, err := netlab.Ask(ctx, r.pods[0].Namespace, "udp", echo(nobody)); err == nil {
				t.Errorf("%s answers at %s, which no pod has", answer.Name, nobody)
			}
		})
		if in != 1 || out != 0 {
			t.Errorf("one packet to %s came %d times, and left %d times", nobody, in, out)
		}
	}
}

// counted counts the packets to an address that a machine's uplink receives and sends while f runs.
func counted(t *testing.T, m *netlab.Machine, to netip.Addr, f func()) (in, out int) {
	t.Helper()
	family := "ip"
	if to.Is6() {
		family = "ip6"
	}
	script := fmt.Sprintf(`table inet seen {
	chain in { type filter hook prerouting priority raw; iifname "uplink" %[1]s daddr %[2]s counter; }
	chain out { type filter hook postrouting priority srcnat + 1; oifname "uplink" %[1]s daddr %[2]s counter; }
}`, family, to)
	if _, err := m.Namespace.Feed(t.Context(), script, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	defer run(t, m, "nft", "delete", "table", "inet", "seen")
	f()
	for chain, into := range map[string]*int{"in": &in, "out": &out} {
		says := run(t, m, "nft", "list", "chain", "inet", "seen", chain)
		_, rest, found := strings.Cut(says, "counter packets ")
		if _, err := fmt.Sscan(rest, into); !found || err != nil {
			t.Fatalf("no counter in %s", says)
		}
	}
	return in, out
}
