package controller

import (
	"fmt"
	"net/netip"
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

// bare returns the Node of a dedicated server with these addresses.
func bare(number int, internal, external string) *corev1.Node {
	n := readyNode(fmt.Sprint("bare-", number), fmt.Sprint("hrobot://", number))
	for kind, text := range map[corev1.NodeAddressType]string{
		corev1.NodeInternalIP: internal, corev1.NodeExternalIP: external,
	} {
		for address := range strings.FieldsSeq(text) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: kind, Address: address})
		}
	}
	return n
}

// reachedAt lists the targets' addresses.
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

// The address of a dedicated server's target depends on the addresses of its Node.
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
		want := lb.Node{Name: "bare-5"}
		want.Private, _ = netip.ParseAddr(c.private)
		want.Public, _ = netip.ParseAddr(c.public)
		if got := asTarget(bare(5, c.internal, c.external), c.ranges, c.ipv6); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}

// A new load balancer for cloud servers and dedicated servers takes one create request, and none
// after that.
func TestCreationWithDedicatedServersIsOneRequest(t *testing.T) {
	for private, want := range map[string]string{
		"true": "10.1.0.5, 10.1.0.6, server in the network, server in the network", "false": "203.0.113.5, 203.0.113.6, server, server",
	} {
		account := robotsim.New(robotsim.Options{})
		inLabWith(t, hcloudsim.Options{Owned: account.Owns}, func(l *lab) {
			for number, ip := range map[int64]string{5: "203.0.113.5", 6: "203.0.113.6"} {
				_, err := account.CreateServer(robotsim.ServerSeed{
					Number: number, IPv4: netip.MustParseAddr(ip),
				})
				l.must(err)
			}
			svc := l.service("000000000001", "use-private-ip", private)
			nodes := append(slices.Clone(l.nodes[:2]), bare(5, "10.1.0.5", "203.0.113.5"), bare(6, "10.1.0.6", "203.0.113.6"))
			nodes[3].Spec.ProviderID = "hcloud://bm-6"

			_, err := l.once(svc, nodes...)
			l.must(err)
			if got := reachedAt(l.sim.LoadBalancers()[0]); got != want {
				t.Errorf("private %s: targets %s, want %s", private, got, want)
			}
			if reads, writes := l.requests(); reads != 2 || writes != 1 {
				t.Errorf("private %s: %d reads, %d writes, want 2 and 1", private, reads, writes)
			}
			_, err = l.once(svc, nodes...)
			l.must(err)
			if reads, writes := l.requests(); reads != 1 || writes != 0 {
				t.Errorf("private %s, again: %d reads, %d writes", private, reads, writes)
			}
			for port, verdicts := range l.states.all()[0].Verdicts {
				if len(verdicts) != 4 || l.states.all()[0].Health(port).Healthy != 4 {
					t.Errorf("private %s: port %d finds %v", private, port, verdicts)
				}
			}
		})
	}
}

// Targets follow changes of dedicated servers and their addresses, with one request for each
// change.
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
			if _, writes := l.requests(); writes != step.writes {
				t.Errorf("%s: %d writes, want %d", step.name, writes, step.writes)
			}
			l.settled(svc, step.nodes...)
		}
	})
}

// A rejected address affects only itself: all others are targets, the Service's note has the
// remedy, and retries become less and less frequent, except that a Node with other addresses is
// retried at once.
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
				t := l.t
				if !c.couple {
					l.post(fmt.Sprintf("/networks/%d/actions/delete_subnet", l.Network), `{"ip_range":"10.1.0.0/24"}`)
				}
				l.ranges = []netip.Prefix{lan} // so that the API gets the address
				svc := l.service("000000000001", "use-private-ip", fmt.Sprint(c.private))
				nodes := []*corev1.Node{l.nodes[0], l.nodes[1], bare(6, c.internal, c.external)}
				good := 2
				if c.couple {
					nodes, good = append(nodes, bare(5, "10.1.0.5", dedicatedAddress)), 3
				}
				notes, err := l.once(svc, nodes...)
				l.must(err)
				if b, next := l.balancer(svc), l.backoff.next(l.owner(svc)); len(b.Targets) != good ||
					next > firstRetry || next < firstRetry-time.Second {
					t.Errorf("targets %s, want all but one, and that in %s\n%s", reachedAt(b), next, l.log())
				}
				if len(notes) != 1 || notes[0].Reason != reasonRejected ||
					!strings.Contains(notes[0].Text, c.code) || !strings.Contains(notes[0].Text, c.remedy) {
					t.Fatalf("notes %v", notes)
				}
				message := notes[0].String()
				if notes := l.idle(svc, nodes...); len(notes) != 1 || notes[0].String() != message {
					t.Errorf("notes %v, want %q as before", notes, message)
				}
				l.requests()
				for range 24 * 12 { // a day of regular resyncs
					time.Sleep(5 * time.Minute)
					if notes, err = l.once(svc, nodes...); err != nil || len(notes) != 1 ||
						notes[0].String() != message {
						t.Fatalf("%v, notes %v, want %q as before", err, notes, message)
					}
				}
				if _, writes := l.requests(); writes > 24+7 {
					t.Errorf("%d writes in a day", writes)
				}
				l.idle(svc, nodes...)
				onChange(l.nodeChanged).OnUpdate(nodes[2], bare(6, c.internal+" 10.1.0.99", c.external))
				if l.once(svc, nodes...); !strings.Contains(l.log(), c.code) {
					t.Error("a Node with other addresses is not asked for again")
				}
			})
		})
	}
}

// A Node without an address of the wanted kind is reported at the Service, and doesn't affect
// others.
func TestDedicatedServerWithoutAddress(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		notes, err := l.once(svc, l.nodes[0], bare(5, "10.1.0.5", ""), bare(6, "192.168.0.6", ""), bare(7, "", ""))
		l.must(err)
		if got := reachedAt(l.balancer(svc)); got != "10.1.0.5, server in the network" {
			t.Errorf("targets %s", got)
		}
		if len(notes) != 1 || notes[0].Reason != lb.ReasonTargetAddressMissing || notes[0].Figures != "bare-6 and 1 more" {
			t.Errorf("notes %+v", notes)
		}
		if cond := condition(notes); cond.Status != metav1.ConditionFalse {
			t.Errorf("condition %+v", cond)
		}
	})
}
