package hetzner_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// looking is a project behind a real socket, the read-only client, and one for other changes.
type looking struct {
	*hetzner.Client
	sim     *hcloudsim.Simulator
	api     *hcloud.Client
	url     string
	network *hcloud.Network
}

func startLooking(t *testing.T, o hcloudsim.Options) *looking {
	t.Helper()
	o.Token, o.RateLimit = "right", hcloudsim.Unlimited
	sim := hcloudsim.New(o)
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	l := &looking{sim: sim, url: server.URL + "/v1"}
	l.Client = l.as(t, "right")
	l.api = hcloud.NewClient(hcloud.WithToken("right"), hcloud.WithEndpoint(l.url))
	network, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8"), Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.0.0.0/16")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.network = &hcloud.Network{ID: network.ID}
	t.Cleanup(func() { l.onlyLooked(t) })
	return l
}

// as returns the read-only client with a token.
func (l *looking) as(t *testing.T, token string) *hetzner.Client {
	t.Helper()
	c, err := hetzner.New(hetzner.Options{
		Endpoint: l.url, Token: func() (string, error) { return token, nil },
		Application: "looker", Version: "test", Registry: metrics.NewKubeRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// onlyLooked reports whether the client sent only reads.
func (l *looking) onlyLooked(t *testing.T) {
	looked := false
	for _, r := range l.sim.Requests() {
		if !strings.HasPrefix(r.UserAgent, "looker/") {
			continue
		}
		looked = true
		if r.Method != "GET" {
			t.Errorf("sent %s %s", r.Method, r.Path)
		}
	}
	if !looked {
		t.Error("nothing was sent, so nothing is proved")
	}
}

func (l *looking) server(t *testing.T, seed hcloudsim.ServerSeed) *hcloud.Server {
	t.Helper()
	made, err := l.sim.CreateServer(seed)
	if err != nil {
		t.Fatal(err)
	}
	return &hcloud.Server{ID: made.ID}
}

func must[T any](t *testing.T) func(T, *hcloud.Response, error) T {
	return func(value T, _ *hcloud.Response, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestInspectServers(t *testing.T) {
	l := startLooking(t, hcloudsim.Options{})
	other, err := l.sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "other", IPRange: netip.MustParsePrefix("10.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr
	began := time.Now()
	cases := []struct {
		seed    hcloudsim.ServerSeed
		private netip.Addr
		aliases []netip.Addr
		status  string
	}{
		{hcloudsim.ServerSeed{Name: "attached", Network: l.network.ID, PrivateIP: addr("10.0.0.7")}, addr("10.0.0.7"), nil, "running"},
		{hcloudsim.ServerSeed{Name: "aliased", Network: l.network.ID, PrivateIP: addr("10.0.0.8"), AliasIPs: []netip.Addr{addr("10.0.1.8")}}, addr("10.0.0.8"), []netip.Addr{addr("10.0.1.8")}, "running"},
		{hcloudsim.ServerSeed{Name: "off", Network: l.network.ID, PrivateIP: addr("10.0.0.9"), Status: "off"}, addr("10.0.0.9"), nil, "off"},
		{hcloudsim.ServerSeed{Name: "outside"}, netip.Addr{}, nil, "running"},
		{hcloudsim.ServerSeed{Name: "elsewhere", Network: other.ID, PrivateIP: addr("10.0.0.10")}, netip.Addr{}, nil, "running"},
	}
	for _, c := range cases {
		l.server(t, c.seed)
	}
	seen, err := l.Servers(l.network.ID).List(t.Context(), time.Time{})
	if err != nil || len(seen) != len(cases) {
		t.Fatalf("%v, %+v", err, seen)
	}
	for i, c := range cases {
		s := seen[i]
		if s.Name != c.seed.Name || s.PrivateIP != c.private || !slices.Equal(s.AliasIPs, c.aliases) || s.Status != c.status || s.Off != (c.status == "off") ||
			s.Created.Before(began.Add(-2*time.Second)) {
			t.Errorf("%s: %+v", c.seed.Name, s)
		}
	}
	if seen, err = l.Servers(0).List(t.Context(), time.Time{}); err != nil ||
		len(seen) != len(cases) || seen[0].PrivateIP.IsValid() {
		t.Errorf("without a network: %v, %+v", err, seen)
	}
}

func TestInspectNetwork(t *testing.T) {
	l := startLooking(t, hcloudsim.Options{})
	l.server(t, hcloudsim.ServerSeed{Name: "a", Network: l.network.ID})
	l.server(t, hcloudsim.ServerSeed{Name: "b", Network: l.network.ID})
	l.server(t, hcloudsim.ServerSeed{Name: "c"})
	must[hcloud.LoadBalancerCreateResult](t)(l.api.LoadBalancer.Create(t.Context(), balancerOpts("web", l.network)))
	want := []routes.Route{entry("10.244.9.0/24", "10.0.0.2"), entry("10.244.1.0/24", "10.0.77.77"), entry("0.0.0.0/0", "10.0.0.3")}
	for _, r := range want {
		if err := l.sim.AddRoute(l.network.ID, hcloudsim.RouteSeed{
			Destination: r.Dst, Gateway: r.Via,
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, idOrName string
		missing        bool
	}{
		{"by name", "cluster", false},
		{"by ID", strconv.FormatInt(l.network.ID, 10), false},
		{"no such name", "clusters", true},
		{"no such ID", "999999", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := l.InspectNetwork(t.Context(), c.idOrName)
			if c.missing {
				if !errors.Is(err, hetzner.ErrNoNetwork) ||
					!strings.Contains(err.Error(), strconv.Quote(c.idOrName)) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n.ID != l.network.ID || n.Name != "cluster" || n.IPRange.String() != "10.0.0.0/8" || fmt.Sprint(n.Subnets) != "[10.0.0.0/16]" ||
				!slices.Equal(n.Routes, want) || n.Servers != 2 || n.LoadBalancers != 1 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// balancerOpts are for a load balancer on two ports.
func balancerOpts(
	name string, network *hcloud.Network, servers ...*hcloud.Server,
) hcloud.LoadBalancerCreateOpts {
	o := hcloud.LoadBalancerCreateOpts{
		Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Labels: map[string]string{"name": name}, Network: network,
	}
	for _, port := range []int{80, 443} {
		o.Services = append(o.Services, hcloud.LoadBalancerCreateOptsService{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(port),
			DestinationPort: new(port + 30000),
		})
	}
	for _, s := range servers {
		o.Targets = append(o.Targets, hcloud.LoadBalancerCreateOptsTarget{
			Type:   hcloud.LoadBalancerTargetTypeServer,
			Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: s}, UsePrivateIP: new(network != nil),
		})
	}
	return o
}

func TestInspectLoadBalancers(t *testing.T) {
	owned := netip.MustParseAddr("198.51.100.9")
	l := startLooking(t, hcloudsim.Options{OwnedIPs: []netip.Addr{owned}})
	var servers []*hcloud.Server
	for i := range 3 {
		servers = append(servers, l.server(t, hcloudsim.ServerSeed{Name: fmt.Sprint("node-", i), Network: l.network.ID}))
	}
	create := func(o hcloud.LoadBalancerCreateOpts) int64 {
		return must[hcloud.LoadBalancerCreateResult](t)(l.api.LoadBalancer.Create(t.Context(),
			o)).LoadBalancer.ID
	}
	inside := create(balancerOpts("inside", l.network, servers...))
	outside := balancerOpts("outside", nil, servers[0])
	outside.Targets = append(outside.Targets, hcloud.LoadBalancerCreateOptsTarget{
		Type: hcloud.LoadBalancerTargetTypeIP,
		IP:   hcloud.LoadBalancerCreateOptsTargetIP{IP: net.IP(owned.AsSlice()).String()},
	})
	create(outside)
	for i := range 50 { // a second page
		create(balancerOpts(fmt.Sprint("other-", i), nil))
	}
	for _, h := range []struct {
		server *hcloud.Server
		port   int
		health hcloudsim.Health
	}{
		{servers[0], 0, hcloudsim.HealthHealthy},
		{servers[1], 80, hcloudsim.HealthUnhealthy},
		{servers[1], 443, hcloudsim.HealthHealthy},
		{servers[2], 0, hcloudsim.HealthUnknown},
	} {
		if err := l.sim.SetTargetHealth(inside, hcloudsim.TargetID{Server: h.server.ID}, h.port,
			h.health); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := l.LoadBalancers().All(t.Context())
	if err != nil || len(seen) != 52 ||
		!slices.IsSortedFunc(seen, func(a, b lb.State) int { return int(a.ID - b.ID) }) {
		t.Fatalf("%v, %d load balancers", err, len(seen))
	}
	b := seen[0]
	if b.Name != "inside" || b.Labels["name"] != "inside" || b.Network != l.network.ID || len(b.Listeners) != 2 || len(b.Targets) != 3 || b.OtherTargets != 0 || b.Created.IsZero() {
		t.Errorf("%+v", b)
	}
	for i, want := range []map[int]lb.Verdict{
		{80: lb.Healthy, 443: lb.Healthy},
		{80: lb.Unhealthy, 443: lb.Healthy},
		{80: lb.Unknown, 443: lb.Unknown},
	} {
		for port, verdict := range want {
			if got, judged := b.Verdicts[port][lb.Target{
				Server: servers[i].ID, Private: true,
			}]; got != verdict || !judged || !b.Targets[i].Private {
				t.Errorf("target %d on port %d is %v, want %v", i, port, got, verdict)
			}
		}
	}
	b = seen[1]
	if want := []lb.Target{
		{Server: servers[0].ID}, lb.AddressTarget(owned),
	}; !slices.Equal(b.Targets, want) || len(b.Verdicts[80]) != 2 || b.OtherTargets != 0 ||
		b.Network != 0 {
		t.Errorf("%+v", b)
	}
}

// Each failed read names its object, and is retried if that may help.
func TestLookingThatFails(t *testing.T) {
	l := startLooking(t, hcloudsim.Options{})
	stranger := l.as(t, "another")
	for _, c := range []struct {
		name string
		look func(context.Context, *hetzner.Client) error
	}{
		{"listing servers", func(ctx context.Context, c *hetzner.Client) error {
			_, err := c.Servers(l.network.ID).List(ctx, time.Time{})
			return err
		}},
		{`getting network "cluster"`, func(ctx context.Context, c *hetzner.Client) error {
			_, err := c.InspectNetwork(ctx, "cluster")
			return err
		}},
		{"listing load balancers", func(ctx context.Context, c *hetzner.Client) error { _, err := c.LoadBalancers().All(ctx); return err }},
	} {
		if err := c.look(t.Context(), stranger); !hetzner.Unauthorized(err) || !strings.HasPrefix(err.Error(), c.name+": ") {
			t.Errorf("%s with a wrong token: %v", c.name, err)
		}
		if err := l.sim.Inject(hcloudsim.Fault{Match: "GET /{rest...}", Status: 503, Code: "unavailable"}); err != nil {
			t.Fatal(err)
		}
		if err := c.look(t.Context(), l.Client); err != nil {
			t.Errorf("%s when the API is away for a moment: %v", c.name, err)
		}
	}
}
