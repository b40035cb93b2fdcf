package hetzner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/lb"
)

// balancerLab is a project with a network, servers in it, and the adapter of its load balancers.
type balancerLab struct {
	*hetzner.LoadBalancers
	sim     *hcloudsim.Simulator
	network *hetzner.Network
	servers []int64 // in the network
	outside int64   // not in the network
}

var labOwner = lb.Owner{Cluster: "lab", UID: "0a1b2c3d-0000-4000-8000-000000000001"}

// inLab runs a test in a bubble, so that actions take virtual time only.
func inLab(t *testing.T, test func(t *testing.T, lab *balancerLab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(hcloudsim.Options{Token: "lab", ActionTime: 300 * time.Millisecond, Latency: 20 * time.Millisecond, RateLimit: hcloudsim.Unlimited, Owned: owned().Contains})
		test(t, newBalancerLab(t, sim))
	})
}

func newBalancerLab(t *testing.T, sim *hcloudsim.Simulator) *balancerLab {
	t.Helper()
	client, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.invalid/v1", Version: "test", Registry: metrics.NewKubeRegistry(), Transport: sim.Transport(),
		Token: func() (string, error) { return "lab", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	lab := &balancerLab{sim: sim}
	seeded, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "lab", IPRange: netip.MustParsePrefix("10.0.0.0/8"), Subnets: []hcloudsim.SubnetSeed{
			{IPRange: netip.MustParsePrefix("10.0.0.0/24")}, {IPRange: netip.MustParsePrefix("10.1.0.0/24"), Type: "vswitch", VSwitch: 4321},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		seed := hcloudsim.ServerSeed{Name: "node-" + strconv.Itoa(i), Network: seeded.ID}
		if i == 5 {
			seed.Network = 0
		}
		server, err := sim.CreateServer(seed)
		if err != nil {
			t.Fatal(err)
		}
		lab.servers = append(lab.servers, server.ID)
	}
	lab.servers, lab.outside = lab.servers[:5], lab.servers[5]
	if lab.network, err = client.Network(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	lab.LoadBalancers = client.LoadBalancers()
	sim.ResetRequests()
	return lab
}

// nodesOf are the nodes on these servers.
func nodesOf(servers []int64) (nodes []lb.Node) {
	for _, id := range servers {
		nodes = append(nodes, lb.Node{Name: fmt.Sprint("node-", id), Server: id})
	}
	return nodes
}

// owned is the range of the public addresses of the project owner's dedicated servers.
func owned() netip.Prefix { return netip.MustParsePrefix("203.0.113.0/24") }

// dedicatedNodes are nodes on dedicated servers with both addresses.
func dedicatedNodes() (nodes []lb.Node) {
	for i := range byte(3) {
		nodes = append(nodes, lb.Node{
			Name: fmt.Sprint("dedicated-", i), Private: netip.AddrFrom4([4]byte{10, 1, 0, 5 + i}), Public: netip.AddrFrom4([4]byte{203, 0, 113, 5 + i}),
		})
	}
	return nodes
}

// counted returns the reads and writes since the last call, without polls of actions, and with
// them.
func (lab *balancerLab) counted() (reads, writes, all int) {
	for _, r := range lab.sim.Requests() {
		all++
		switch {
		case r.Method != http.MethodGet:
			writes++
		case !strings.Contains(r.Path, "/actions"):
			reads++
		}
	}
	lab.sim.ResetRequests()
	return reads, writes, all
}

func (lab *balancerLab) log() string {
	var b strings.Builder
	for _, r := range lab.sim.Requests() {
		fmt.Fprintf(&b, "%s %s %d %s\n", r.Method, r.Path, r.Status, r.Code)
	}
	return b.String()
}

// spec is the load balancer for a Service with two ports.
func (lab *balancerLab) spec(t *testing.T, change func(*lb.Service)) lb.Spec {
	t.Helper()
	svc := lb.Service{
		UID:         labOwner.UID,
		Ports:       []lb.Port{{Number: 80, Protocol: "TCP", NodePort: 30080}, {Number: 443, Protocol: "TCP", NodePort: 30443}},
		Annotations: map[string]string{lb.HetznerPrefix + "use-private-ip": "true"},
	}
	if change != nil {
		change(&svc)
	}
	spec, _, err := lb.Parse(svc, lb.Defaults{Cluster: labOwner.Cluster, Network: lab.network.Last().ID, Location: "nbg1"})
	if err != nil {
		t.Fatal(err)
	}
	return spec.WithTargets(nodesOf(lab.servers))
}

// reconcile acts as the controller: it reads, diffs, and sends only the changes.
func (lab *balancerLab) reconcile(ctx context.Context, spec lb.Spec) error {
	have, err := lab.Observe(ctx, spec.Owner)
	if err != nil {
		return err
	}
	for _, op := range lb.Diff(spec, have) {
		steps := []lb.Op{op}
		if swap, ok := lb.SwapOf(op); ok {
			steps = []lb.Op{swap.Take, swap.Give}
		}
		for _, step := range steps {
			if err := lab.Apply(ctx, have, step); err != nil {
				return fmt.Errorf("%s: %w", op, err)
			}
		}
	}
	return nil
}

// as fails the test unless the cloud has exactly this load balancer.
func (lab *balancerLab) as(t *testing.T, spec lb.Spec) lb.State {
	t.Helper()
	have, err := lab.Observe(t.Context(), spec.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if ops := lb.Diff(spec, have); len(ops) > 0 || len(lab.sim.LoadBalancers()) != 1 {
		t.Fatalf("%d load balancers, still to do: %v\nrequests:\n%s", len(lab.sim.LoadBalancers()), ops, lab.log())
	}
	return have
}

func TestLoadBalancerRequests(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		ctx, spec := t.Context(), lab.spec(t, nil)
		if err := lab.reconcile(ctx, spec); err != nil {
			t.Fatal(err)
		}
		have := lab.as(t, spec) // the controller reads it too, for its addresses
		if !have.IPv4.Is4() || !have.IPv6.Is6() || have.PrivateIP.String() == "" || !have.PrivateIP.IsPrivate() {
			t.Errorf("addresses: %s, %s, %s", have.IPv4, have.IPv6, have.PrivateIP)
		}
		if _, writes, all := lab.counted(); writes != 1 || all > 5 {
			t.Errorf("a new load balancer with 5 targets and 2 ports: %d writes, %d requests, want 1 and at most 5", writes, all)
		}

		if err := lab.reconcile(ctx, spec); err != nil {
			t.Fatal(err)
		}
		if _, writes, all := lab.counted(); writes != 0 || all != 1 {
			t.Errorf("nothing to do: %d writes, %d requests, want 0 and 1", writes, all)
		}

		local := lab.spec(t, func(svc *lb.Service) { svc.Local, svc.HealthCheckNodePort = true, 32000 })
		if err := lab.reconcile(ctx, local); err != nil {
			t.Fatal(err)
		}
		if reads, writes, _ := lab.counted(); writes != 2 || reads != 1 {
			t.Errorf("policy Cluster to Local on 2 ports: %d reads, %d writes, want 1 and 2", reads, writes)
		}
		lab.as(t, local)
		lab.counted()

		have, err := lab.Observe(ctx, spec.Owner)
		if err != nil {
			t.Fatal(err)
		}
		if err := lab.Apply(ctx, have, lb.Delete{}); err != nil {
			t.Fatal(err)
		}
		if _, writes, all := lab.counted(); writes != 1 || all > 3 || len(lab.sim.LoadBalancers()) != 0 {
			t.Errorf("deletion: %d writes, %d requests, want 1 and at most 3; %d left", writes, all, len(lab.sim.LoadBalancers()))
		}
		if err := lab.Apply(ctx, have, lb.Delete{}); !errors.Is(err, lb.ErrGone) {
			t.Errorf("deleting what is gone: %v", err)
		}
	})
}

// Addresses of dedicated servers are in the single request of a creation, one request adds or
// removes one, and their health is read like that of servers.
func TestAddressTargets(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		all := append(nodesOf(lab.servers[:2]), dedicatedNodes()...)
		spec := lab.spec(t, nil).WithTargets(all[:4])
		for _, step := range []struct {
			name   string
			nodes  []lb.Node
			writes int
		}{{"creation", all[:4], 1}, {"one comes", all, 1}, {"two leave", all[2:], 2}, {"two come", all, 2}} {
			spec = spec.WithTargets(step.nodes)
			lab.counted()
			if err := lab.reconcile(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			if _, writes, _ := lab.counted(); writes != step.writes {
				t.Errorf("%s: %d writes, want %d", step.name, writes, step.writes)
			}
			lab.as(t, spec)
		}
		address, server := lb.AddressTarget(all[2].Private), lb.Target{
			Server: lab.servers[0], Private: true,
		}
		id := lab.sim.LoadBalancers()[0].ID
		finding := hcloudsim.Finding{
			Health: hcloudsim.HealthUnhealthy, Detail: hcloudsim.DetailHTTPStatus, HTTPStatus: 503,
		}
		if err := lab.sim.SetTargetFinding(id, hcloudsim.TargetID{IP: address.Address}, 80,
			finding); err != nil {
			t.Fatal(err)
		}
		have := lab.as(t, spec)
		if have.Verdicts[80][address] != lb.Unhealthy || have.Verdicts[443][address] != lb.Healthy ||
			have.Verdicts[80][server] != lb.Healthy || len(have.Verdicts[80]) != 5 {
			t.Errorf("verdicts %v", have.Verdicts)
		}
		if why := have.Why[80][address]; why != (lb.Cause{
			Detail: lb.DetailHTTPStatus, HTTPStatus: 503,
		}) || len(have.Why) != 1 {
			t.Errorf("reasons %v", have.Why)
		}
		// Another client was faster.
		if err := lab.Apply(t.Context(), have, lb.AddTarget{Target: address}); err != nil {
			t.Errorf("adding what is there: %v", err)
		}
		if err := lab.Apply(t.Context(), have, lb.RemoveTarget{Target: lb.AddressTarget(netip.MustParseAddr("10.1.0.99"))}); err != nil {
			t.Errorf("removing what is not there: %v", err)
		}
	})
}

// Changes of the ranges of dedicated servers are noticed with the routes.
func TestDedicatedRanges(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		if got := fmt.Sprint(lab.network.Last().DedicatedRanges); got != "[10.1.0.0/24]" {
			t.Errorf("coupled with a vSwitch: %s", got)
		}
		lab.onNetwork(t, "delete_subnet", `{"ip_range":"10.1.0.0/24"}`)
		if _, err := lab.network.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(lab.network.Last().DedicatedRanges); got != "[10.0.0.0/8]" {
			t.Errorf("not coupled: %s", got)
		}
	})
}

// VSwitch returns the vSwitch of a subnet from the last read.
func TestTheSubnetsVSwitch(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		first, second := netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("10.1.1.0/24")
		known := func(want ...int64) {
			t.Helper()
			if got := []int64{lab.network.Last().VSwitches[first], lab.network.Last().VSwitches[second], lab.network.Last().VSwitches[netip.MustParsePrefix("10.0.0.0/16")]}; !slices.Equal(got, want) {
				t.Errorf("vSwitches %v, want %v", got, want)
			}
		}
		was := lab.network.Last().VSwitches[first]
		if was == 0 {
			t.Error("the vSwitch is not known")
		}
		lab.onNetwork(t, "delete_subnet", `{"ip_range":"10.1.0.0/24"}`)
		lab.onNetwork(t, "add_subnet", `{"type":"vswitch","ip_range":"10.1.1.0/24","network_zone":"eu-central","vswitch_id":4321}`)
		known(was, 0, 0)
		if _, err := lab.network.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		known(0, 4321, 0)
	})
}

// If the routes aren't read, the subnets alone cost a request in 5 minutes at most, also while
// requests fail.
func TestDedicatedRangesAreRefreshed(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		refresh := func(what string, after time.Duration, requests int, ranges string) {
			t.Helper()
			time.Sleep(after)
			lab.sim.ResetRequests()
			err := lab.network.RefreshDedicatedRanges(t.Context())
			got, sent := fmt.Sprint(lab.network.Last().DedicatedRanges), len(lab.sim.Requests())
			if err != nil || sent != requests || got != ranges {
				t.Errorf("%s: %s with %d requests, want %s with %d; %v", what, got, sent, ranges, requests, err)
			}
		}
		lab.onNetwork(t, "delete_subnet", `{"ip_range":"10.1.0.0/24"}`)
		refresh("it was just looked up", 0, 0, "[10.1.0.0/24]")
		refresh("5 minutes later", 5*time.Minute, 1, "[10.0.0.0/8]")
		lab.onNetwork(t, "add_subnet", `{"type":"vswitch","ip_range":"10.1.0.0/24","network_zone":"eu-central","vswitch_id":4321}`)
		refresh("4 minutes after that", 4*time.Minute, 0, "[10.0.0.0/8]")
		refresh("5 minutes after that", time.Minute, 1, "[10.1.0.0/24]")
		time.Sleep(4 * time.Minute)
		if _, err := lab.network.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		refresh("somebody looks at the routes", 4*time.Minute, 0, "[10.1.0.0/24]")
	})
}

// One list request returns up to 50 load balancers of a cluster, and no others.
func TestLoadBalancerList(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		for i := range 51 {
			spec := lab.spec(t, nil)
			spec.Owner.UID, spec.Name = strconv.Itoa(i), strconv.Itoa(i)
			if i == 50 {
				spec.Owner.Cluster = "another"
			}
			if err := lab.Apply(t.Context(), lb.State{}, lb.Create{Spec: spec}); err != nil {
				t.Fatal(err)
			}
		}
		lab.counted()
		states, err := lab.List(t.Context(), labOwner.Cluster, true)
		if _, _, all := lab.counted(); err != nil || len(states) != 50 || all != 1 {
			t.Errorf("%d load balancers in %d requests, error %v; want 50 in 1", len(states), all, err)
		}
	})
}

// Diff and Apply bring any load balancer into the wanted state, with the real requests. One that
// becomes private needs a second pass, because its ports open after that.
func TestLoadBalancerFromAnyStateToAnySpec(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		for seed := range uint64(150) {
			r := rand.New(rand.NewPCG(seed, 0))
			spec := lab.randomSpec(t, r)
			for range 2 {
				if err := lab.reconcile(t.Context(), spec); err != nil {
					t.Fatalf("seed %d: %v\n%s", seed, err, lab.log())
				}
			}
			lab.as(t, spec)
			lab.counted()
		}
	})
}

func (lab *balancerLab) randomSpec(t *testing.T, r *rand.Rand) lb.Spec {
	bools := func() string { return strconv.FormatBool(r.IntN(2) == 0) }
	spec := lab.spec(t, func(svc *lb.Service) {
		svc.Annotations = map[string]string{
			lb.HetznerPrefix + "use-private-ip":        bools(),
			lb.HetznerPrefix + "uses-proxyprotocol":    bools(),
			lb.HetznerPrefix + "type":                  fmt.Sprintf("lb%d1", 1+r.IntN(3)),
			lb.HetznerPrefix + "name":                  fmt.Sprintf("name-%d", r.IntN(2)),
			lb.HetznerPrefix + "algorithm-type":        []string{"round_robin", "least_connections"}[r.IntN(2)],
			lb.HetznerPrefix + "health-check-protocol": []string{"", "tcp", "http"}[r.IntN(3)],
			lb.HetznerPrefix + "health-check-retries":  strconv.Itoa(1 + r.IntN(5)),
		}
		if svc.Annotations[lb.HetznerPrefix+"use-private-ip"] == "true" {
			svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = bools()
		}
		svc.Local, svc.HealthCheckNodePort = r.IntN(2) == 0, 32000
		svc.Ports = nil
		for port := range 5 {
			if r.IntN(2) == 0 {
				svc.Ports = append(svc.Ports, lb.Port{Number: 80 + port, Protocol: "TCP", NodePort: 30000 + r.IntN(3)})
			}
		}
		if len(svc.Ports) == 0 {
			svc.Ports = []lb.Port{{Number: 1, Protocol: "TCP", NodePort: 30001}}
		}
	})
	servers := slices.Clone(lab.servers)
	r.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	nodes := nodesOf(servers[:r.IntN(len(servers)+1)])
	for _, n := range dedicatedNodes() {
		if r.IntN(2) == 0 {
			nodes = append(nodes, n)
		}
	}
	return spec.WithTargets(nodes)
}
