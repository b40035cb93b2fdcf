package controller

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/lb"
)

// bare is a Node of a dedicated server with these addresses.
func bare(number int, internal, external string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bare-", number)},
		Spec:       corev1.NodeSpec{ProviderID: fmt.Sprint("hrobot://", number)},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for kind, text := range map[corev1.NodeAddressType]string{corev1.NodeInternalIP: internal, corev1.NodeExternalIP: external} {
		for address := range strings.FieldsSeq(text) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: kind, Address: address})
		}
	}
	return n
}

// overHTTP lets every request go through a socket.
func (l *lab) overHTTP() {
	server := httptest.NewServer(l.sim)
	l.t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	l.must(err)
	l.wire.next = redirected{server.Client().Transport, target}
}

// reachedAt is where a load balancer sends traffic to.
func reachedAt(b schema.LoadBalancer) string {
	var at []string
	for _, t := range b.Targets {
		switch {
		case t.IP != nil:
			at = append(at, t.IP.IP)
		case t.UsePrivateIP:
			at = append(at, "server in the network")
		default:
			at = append(at, "server")
		}
	}
	slices.Sort(at)
	return strings.Join(at, ", ")
}

// How a Node of a dedicated server is reached, from what it says of its addresses.
func TestAddressesOfDedicatedServers(t *testing.T) {
	vSwitch := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
	for _, c := range []struct {
		name               string
		internal, external string
		ranges             []netip.Prefix
		ipv6               bool
		private, public    string
	}{
		{"both", "10.1.0.5", "203.0.113.5", vSwitch, false, "10.1.0.5", "203.0.113.5"},
		{"dual-stack", "10.1.0.5 2001:db8::5", "203.0.113.5 2001:db8::6", vSwitch, true, "10.1.0.5", "203.0.113.5"},
		{"another network's address first", "192.168.0.5 10.1.0.5", "", vSwitch, false, "10.1.0.5", ""},
		{"an address outside the vSwitch subnet", "10.0.0.5", "203.0.113.5", vSwitch, false, "", "203.0.113.5"},
		{"no vSwitch subnet is known", "10.0.0.5", "", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, false, "10.0.0.5", ""},
		{"no network is known", "192.168.0.5", "", nil, false, "192.168.0.5", ""},
		{"no vSwitch at all", "203.0.113.5", "", vSwitch, false, "", "203.0.113.5"},
		{"IPv6 alone, of a Service with both families", "10.1.0.5", "2001:db8::5", vSwitch, true, "10.1.0.5", "2001:db8::5"},
		{"IPv6 alone, of a Service with IPv4", "10.1.0.5", "2001:db8::5", vSwitch, false, "10.1.0.5", ""},
		{"nothing", "fe80::1 fd00::5", "", vSwitch, true, "", ""},
	} {
		var want lb.Node
		want.Name = "bare-5"
		want.Private, _ = netip.ParseAddr(c.private)
		want.Public, _ = netip.ParseAddr(c.public)
		if got := asTarget(bare(5, c.internal, c.external), c.ranges, c.ipv6); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}

// A new load balancer for cloud servers and dedicated servers is one create request, and costs
// nothing after that.
func TestCreationWithDedicatedServersIsOneRequest(t *testing.T) {
	for _, private := range []bool{true, false} {
		account := robotsim.New(robotsim.Options{})
		l := newLab(t, hcloudsim.Options{Owned: account.Owns})
		for number, ip := range map[int64]string{5: "203.0.113.5", 6: "203.0.113.6"} {
			_, err := account.CreateServer(robotsim.ServerSeed{Number: number, IPv4: netip.MustParseAddr(ip)})
			l.must(err)
		}
		l.overHTTP()
		svc := l.service("000000000001")
		svc.Annotations[hetznerPrefix+"use-private-ip"] = fmt.Sprint(private)
		nodes := append(slices.Clone(l.nodes[:2]), bare(5, "10.1.0.5", "203.0.113.5"), bare(6, "10.1.0.6", "203.0.113.6"))
		nodes[3].Spec.ProviderID = "hcloud://bm-6"

		p := l.plan(svc, nodes...)
		p.hadManaged = false
		l.converge(quiet(l.t.Context()), p, hooks{})
		b := l.sim.LoadBalancers()[0]
		want := "10.1.0.5, 10.1.0.6, server in the network, server in the network"
		if !private {
			want = "203.0.113.5, 203.0.113.6, server, server"
		}
		if got := reachedAt(b); got != want {
			t.Errorf("private %t: targets %s, want %s", private, got, want)
		}
		if reads, writes, _ := l.requests(); reads != 2 || writes != 1 {
			t.Errorf("private %t: %d reads, %d writes, want 2 and 1", private, reads, writes)
		}
		o := l.converge(quiet(l.t.Context()), p, hooks{})
		if reads, writes, _ := l.requests(); reads != 1 || writes != 0 || o.Transient != nil {
			t.Errorf("private %t, again: %d reads, %d writes, %v", private, reads, writes, o.Transient)
		}
		for port, verdicts := range o.State.Verdicts {
			if len(verdicts) != 4 || o.State.Health(port).Healthy != 4 {
				t.Errorf("private %t: port %d finds %v", private, port, verdicts)
			}
		}
	}
}

// Targets follow the addresses and the coming and going of dedicated servers, with one request for
// each change.
func TestTargetsFollowDedicatedServers(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		nodes := []*corev1.Node{l.nodes[0], bare(5, "10.1.0.5", ""), bare(6, "10.1.0.6", "")}
		l.converged(svc, nodes...)
		for _, step := range []struct {
			name   string
			nodes  []*corev1.Node
			want   string
			writes int
		}{
			{"another address", []*corev1.Node{l.nodes[0], bare(5, "10.1.0.50", ""), bare(6, "10.1.0.6", "")}, "10.1.0.50, 10.1.0.6, server in the network", 2},
			{"one leaves", []*corev1.Node{l.nodes[0], bare(6, "10.1.0.6", "")}, "10.1.0.6, server in the network", 1},
			{"one comes", []*corev1.Node{l.nodes[0], bare(7, "10.1.0.7", ""), bare(6, "10.1.0.6", "")}, "10.1.0.6, 10.1.0.7, server in the network", 1},
		} {
			l.requests()
			if got := reachedAt(l.converged(svc, step.nodes...)); got != step.want {
				t.Errorf("%s: targets %s, want %s", step.name, got, step.want)
			}
			if _, writes, _ := l.requests(); writes != step.writes {
				t.Errorf("%s: %d writes, want %d", step.name, writes, step.writes)
			}
			l.settled(svc, step.nodes...)
		}
	})
}

// What the API refuses of an address concerns that address alone: the others are targets, the
// Service says what to do, and the cloud is not asked again and again.
func TestRefusedAddressesCostTheOthersNothing(t *testing.T) {
	for name, c := range map[string]struct {
		couple             bool
		private            bool
		internal, external string
		code, remedy       string
	}{
		"somebody else's":     {couple: true, internal: "10.1.0.6", external: "203.0.113.6", code: "ip_not_owned", remedy: "exclude-from-external-load-balancers"},
		"a cloud server's":    {couple: true, internal: "10.1.0.6", external: "198.18.0.1", code: "cloud_resource_ip_not_allowed", remedy: "hcloud://"},
		"no vSwitch subnet":   {private: true, internal: "10.0.0.77", code: "network_has_no_vswitch_subnet", remedy: "subnet of type vswitch"},
		"outside the vSwitch": {couple: true, private: true, internal: "10.0.0.77", code: "ip_not_in_vswitch_subnet", remedy: "--node-ip"},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				if !c.couple {
					l.post(fmt.Sprintf("/networks/%d/actions/delete_subnet", l.Network), `{"ip_range":"10.1.0.0/24"}`)
				}
				l.DedicatedRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} // so that the API is asked
				svc := l.service("000000000001")
				svc.Annotations[hetznerPrefix+"use-private-ip"] = fmt.Sprint(c.private)
				nodes := []*corev1.Node{l.nodes[0], l.nodes[1], bare(6, c.internal, c.external)}
				good := 2
				if c.couple {
					nodes, good = append(nodes, bare(5, "10.1.0.5", dedicatedAddress)), 3
				}
				o := l.converge(quiet(l.t.Context()), l.plan(svc, nodes...), hooks{})
				if b := l.sim.LoadBalancers()[0]; len(b.Targets) != good || o.RetryTargets != firstRetry {
					t.Errorf("targets %s, want all but one, and that in %s\n%s", reachedAt(b), o.RetryTargets, l.log())
				}
				if len(o.Notes) != 1 || o.Notes[0].Reason != reasonRejected || !strings.Contains(o.Notes[0].Text, c.code) || !strings.Contains(o.Notes[0].Text, c.remedy) {
					t.Errorf("notes %v", o.Notes)
				}
				said := o.Notes[0].String()

				l.requests()
				for range 10 { // within 30 s
					time.Sleep(2 * time.Second)
					if o = l.converge(quiet(l.t.Context()), l.plan(svc, nodes...), hooks{}); len(o.Notes) != 1 || o.Notes[0].String() != said {
						t.Errorf("notes %v, want %q as before", o.Notes, said)
					}
				}
				if _, writes, _ := l.requests(); writes != 0 {
					t.Errorf("%d writes within 30 s", writes)
				}
				for range 24 * 12 { // a day of regular looks
					time.Sleep(5 * time.Minute)
					l.converge(quiet(l.t.Context()), l.plan(svc, nodes...), hooks{})
				}
				if _, writes, _ := l.requests(); writes > 7 {
					t.Errorf("%d writes in a day", writes)
				}
				changed := bare(6, c.internal+" 10.1.0.99", c.external)
				if !l.refusals.changed(nodes[2], changed) {
					t.Error("a Node with other addresses is not asked for again")
				}
				if !l.refusals.any() {
					t.Error("nothing is remembered")
				}
				if l.refusals.gone(changed); l.refusals.any() {
					t.Error("the refusal outlives the Node")
				}
			})
		})
	}
}

// A Node without an address where targets are reached is told at the Service, and stands in
// nobody's way.
func TestDedicatedServerWithoutAddress(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		o := l.converge(quiet(l.t.Context()), l.plan(svc, l.nodes[0], bare(5, "10.1.0.5", ""), bare(6, "192.168.0.6", ""), bare(7, "", "")), hooks{})
		if got := reachedAt(l.sim.LoadBalancers()[0]); got != "10.1.0.5, server in the network" {
			t.Errorf("targets %s", got)
		}
		if len(o.Notes) != 1 || o.Notes[0].Reason != lb.ReasonTargetAddressMissing || o.Notes[0].Figures != "bare-6 and 1 more" || o.Transient != nil {
			t.Errorf("notes %+v, %v", o.Notes, o.Transient)
		}
		if cond := condition(o.Notes); cond.Status != metav1.ConditionFalse {
			t.Errorf("condition %+v", cond)
		}
	})
}

// Dedicated servers change to their addresses in the network as cloud servers do: one at a time,
// each while those that have changed are healthy, and not at all where the first is not.
func TestDedicatedServersChangeTheirAddresses(t *testing.T) {
	for name, dead := range map[string]bool{"all are healthy there": false, "none is healthy there": true} {
		t.Run(name, func(t *testing.T) {
			prober := judging(func(p hcloudsim.Probe) hcloudsim.Health {
				if dead && lan.Contains(p.Address) {
					return hcloudsim.HealthUnhealthy
				}
				return hcloudsim.HealthHealthy
			})
			options := hcloudsim.Options{Prober: prober, Owned: netip.MustParsePrefix("203.0.113.0/24").Contains}
			inLabWith(t, options, func(l *lab) {
				c := &change{lab: l, svc: l.service("000000000001"), fault: func(lb.Op) error { return nil }}
				for i := range 4 {
					c.nodes = append(c.nodes, bare(5+i, fmt.Sprint("10.1.0.", 5+i), fmt.Sprint("203.0.113.", 5+i)))
				}
				inTheNetwork(c.svc, false)
				c.converged(c.svc, c.nodes...)
				time.Sleep(time.Minute)
				id := l.sim.LoadBalancers()[0].ID
				c.fewest = 4
				l.backend = watched{
					l.backend, func(op lb.Op) error { return c.fault(op) },
					func() { c.fewest = min(c.fewest, len(l.sim.HealthyTargets(id, 80))) },
				}
				inTheNetwork(c.svc, true)
				o := c.looks(20 * time.Minute)
				b, _ := l.sim.LoadBalancer(id)
				want := "10.1.0.5, 10.1.0.6, 10.1.0.7, 10.1.0.8"
				if dead {
					want = "10.1.0.5, 203.0.113.6, 203.0.113.7, 203.0.113.8"
				}
				if got := reachedAt(b); got != want || c.fewest < 3 || b.PublicNet.Enabled != dead {
					t.Errorf("targets %s, want %s; at least %d healthy ones; public %t\n%s", got, want, c.fewest, b.PublicNet.Enabled, l.log())
				}
				if stuck := slices.ContainsFunc(o.Notes, func(n lb.Note) bool { return n.Reason == lb.ReasonTargetsNotReplaced }); stuck != dead {
					t.Errorf("notes %v", o.Notes)
				}
			})
		})
	}
}
