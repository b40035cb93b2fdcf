package hetzner_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// inLabOf is inLab with options of the cloud. pod returns addresses in the /64 of server 0.
func inLabOf(
	t *testing.T, options hcloudsim.Options,
	test func(t *testing.T, lab *balancerLab, pod func(server, host int) lb.Target),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		options.Token, options.RateLimit, options.ActionTime = "lab", hcloudsim.Unlimited, 300*time.Millisecond
		lab := newBalancerLab(t, hcloudsim.New(options))
		own := map[int64]netip.Prefix{}
		for _, s := range lab.sim.Servers() {
			own[s.ID] = netip.MustParsePrefix(s.PublicNet.IPv6.IP)
		}
		test(t, lab, func(server, host int) lb.Target {
			address := own[lab.servers[server]].Addr().As16()
			address[12], address[15] = 1, byte(host)
			return lb.Target{Server: lab.servers[server], Address: netip.AddrFrom16(address)}
		})
	})
}

func (lab *balancerLab) created(t *testing.T) lb.State {
	t.Helper()
	spec := lb.Spec{
		Owner: labOwner, Name: "web", Type: "lb11", Location: "fsn1", Algorithm: lb.RoundRobin, Public: true, Targeting: lb.Targeting{PodTargets: true},
		Listeners: []lb.Listener{{Port: 80, DestinationPort: 8080, Protocol: "tcp", Check: lb.HealthCheck{Protocol: "tcp", Port: 8080, Interval: 10 * time.Second, Timeout: 15 * time.Second, Retries: 3}}},
	}
	if err := lab.Apply(t.Context(), lb.State{}, lb.Create{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	return lab.observed(t)
}

func (lab *balancerLab) observed(t *testing.T) lb.State {
	t.Helper()
	have, err := lab.Observe(t.Context(), labOwner)
	if err != nil {
		t.Fatal(err)
	}
	return have
}

func TestPodsAreTargetsAtTheirAddresses(t *testing.T) {
	inLabOf(t, hcloudsim.Options{},
		func(t *testing.T, lab *balancerLab, pod func(server, host int) lb.Target) {
			have := lab.created(t)
			node := lb.Target{Server: lab.servers[0]}
			want := []lb.Target{node, pod(0, 1), pod(0, 2), pod(1, 1)}
			for _, target := range want {
				if err := lab.Apply(t.Context(), have, lb.AddTarget{Target: target}); err != nil {
					t.Fatal(err)
				}
			}
			slices.SortFunc(want, lb.Target.Compare)
			have = lab.observed(t)
			if !slices.Equal(have.Targets, want) {
				t.Fatalf("targets are %v, want %v", have.Targets, want)
			}
			if len(have.Verdicts[80]) != 4 || have.Verdicts[80][pod(0, 2)] != lb.Healthy {
				t.Errorf("verdicts are %v", have.Verdicts)
			}
			if err := lab.Apply(t.Context(), have, lb.AddTarget{Target: pod(0, 1)}); err != nil {
				t.Errorf("adding one that is there: %v", err)
			}
			for range 2 { // the second time it is deleted already
				if err := lab.Apply(t.Context(), have, lb.RemoveTarget{Target: pod(0, 1)}); err != nil {
					t.Fatal(err)
				}
			}
			if have = lab.observed(t); slices.Contains(have.Targets, pod(0, 1)) || len(have.Targets) != 3 {
				t.Errorf("targets are %v", have.Targets)
			}
			stranger := lb.Target{Server: lab.servers[0], Address: pod(1, 7).Address}
			var rejected *lb.RejectedError
			if err := lab.Apply(t.Context(), have, lb.AddTarget{Target: stranger}); !errors.As(err, &rejected) || !rejected.Target || rejected.Code != "ip_not_assigned_to_server" {
				t.Errorf("another server's address: %v", err)
			}
		})
}

// The error target_already_defined has no information about a pod if its server is a target at
// another address.
func TestSecondPodOfANodeMayBeRefused(t *testing.T) {
	inLabOf(t, hcloudsim.Options{OneTargetPerServer: true},
		func(t *testing.T, lab *balancerLab, pod func(server, host int) lb.Target) {
			have := lab.created(t)
			if err := lab.Apply(t.Context(), have, lb.AddTarget{Target: pod(0, 1)}); err != nil {
				t.Fatal(err)
			}
			var rejected *lb.RejectedError
			if err := lab.Apply(t.Context(), have, lb.AddTarget{
				Target: pod(0, 2),
			}); !errors.As(err, &rejected) || !rejected.Target {
				t.Errorf("a second pod of the node: %v", err)
			}
			if err := lab.Apply(t.Context(), have, lb.AddTarget{Target: pod(0, 1)}); err != nil {
				t.Errorf("the first once more: %v", err)
			}
		})
}
