package controller_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/lb"
)

// cloud is a simulated project behind the real client. It counts the controller's reads and records
// its changes, can reject them, and lets a test set the verdicts of health checks, which are
// unknown by default.
type cloud struct {
	sim     *hcloudsim.Simulator
	client  *hetzner.LoadBalancers
	servers *hetzner.Servers
	seeds   []lb.State

	mu        sync.Mutex
	reads     int
	writes    []string
	options   hcloudsim.Options // in addition to those of every cloud
	fault     func(lb.Op) error
	watch     func(lb.Op)           // is called before each op is executed
	observe   func(lb.State, lb.Op) // the same, with the load balancer as the controller read it
	sending   func()                // is called before each request is sent
	hidden    error                 // the error of lists of certificates, if set
	verdicts  map[int64]map[int]map[lb.Target]lb.Verdict
	judge     func(lb.Target) lb.Verdict // returns all verdicts, if set
	cause     lb.Cause                   // of all unhealthy targets
	types     map[string]schema.LoadBalancerType
	locations map[string]schema.Location
}

var _ lb.Backend = (*cloud)(nil)

// vSwitch contains the dedicated servers' addresses in the networks.
var vSwitch = netip.MustParsePrefix("10.1.0.0/24")

// newCloud returns a cloud with these load balancers, two networks, 7 and 8, and servers in both.
func newCloud(seeds ...lb.State) *cloud {
	return &cloud{seeds: seeds, verdicts: map[int64]map[int]map[lb.Target]lb.Verdict{}}
}

// open creates the simulator, within a test's bubble.
func (c *cloud) open(t *testing.T) {
	t.Helper()
	if c.sim != nil {
		return
	}
	options := c.options
	options.RateLimit, options.AttachmentLimit = hcloudsim.Unlimited, hcloudsim.Unlimited
	if options.Prober == nil {
		options.HealthyAfter = 1 << 62
	}
	c.sim = hcloudsim.New(options)
	client, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.invalid/v1", Version: "test", Registry: metrics.NewKubeRegistry(), Transport: c,
		Token: func() (string, error) { return "any", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	c.client, c.servers = client.LoadBalancers(), client.Servers(7)
	network, err := c.sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "network", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
		Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.0.0.0/16")}, {IPRange: vSwitch, Type: "vswitch", VSwitch: 4321}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.sim.CreateServer(hcloudsim.ServerSeed{Name: "server", Network: network.ID}); err != nil {
		t.Fatal(err)
	}
	var types schema.LoadBalancerTypeListResponse
	var locations schema.LocationListResponse
	c.get(t, "load_balancer_types", &types)
	c.get(t, "locations", &locations)
	c.types, c.locations = map[string]schema.LoadBalancerType{}, map[string]schema.Location{}
	for _, typ := range types.LoadBalancerTypes {
		c.types[typ.Name] = typ
	}
	for _, l := range locations.Locations {
		c.locations[l.Name] = l
	}
	c.edit(func(project map[string]any) {
		network := project["networks"].([]any)[0].(map[string]any)
		server := project["servers"].([]any)[0].(map[string]any)
		place := server["private_net"].([]any)[0].(map[string]any)
		var networks, servers []any
		for _, id := range []int{7, 8} {
			networks = append(networks, with(network, map[string]any{"id": id, "name": fmt.Sprint("network-", id)}))
		}
		for id := range 120 {
			var places []any
			for _, n := range []int{7, 8} {
				places = append(places, with(place, map[string]any{"network": n, "ip": fmt.Sprint("10.0.1.", id+1)}))
			}
			public := with(server["public_net"].(map[string]any), map[string]any{
				"ipv6": map[string]any{"id": id + 1, "ip": ownOf(id + 1).String(), "blocked": false, "dns_ptr": []any{}},
			})
			servers = append(servers, with(server, map[string]any{"id": id + 1, "name": fmt.Sprint("node-", id+1), "private_net": places, "public_net": public}))
		}
		project["networks"], project["servers"], project["last_id"] = networks, servers, 0
	})
	for _, s := range c.seeds {
		c.put(s)
	}
}

// RoundTrip forwards a request to the simulator.
func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	sending := c.sending
	c.mu.Unlock()
	if sending != nil {
		sending()
	}
	return c.sim.Transport().RoundTrip(r)
}

// onSending sets a function to call before each request.
func (c *cloud) onSending(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending = f
}

// ownOf returns the /64 of a server.
func ownOf(server int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::/64", 0x100+server))
}

// with returns a copy of an object with some values replaced.
func with(object, values map[string]any) map[string]any {
	object = maps.Clone(object)
	maps.Copy(object, values)
	return object
}

func (c *cloud) get(t *testing.T, path string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cloud.invalid/v1/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer any")
	answer, err := c.sim.Transport().RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// edit changes the project without the controller.
func (c *cloud) edit(change func(project map[string]any)) {
	var project map[string]any
	must(json.Unmarshal(c.sim.Snapshot(), &project))
	change(project)
	text, err := json.Marshal(project)
	must(err)
	must(c.sim.Restore(text))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// row changes one row of a table of the project.
func (c *cloud) row(table string, id int64, change func(row map[string]any)) {
	c.edit(func(project map[string]any) {
		for _, row := range project[table].([]any) {
			if row := row.(map[string]any); row["id"].(float64) == float64(id) {
				change(row)
			}
		}
	})
}

// put creates or replaces a load balancer.
func (c *cloud) put(s lb.State) {
	c.mu.Lock()
	c.verdicts[s.ID] = s.Verdicts
	c.mu.Unlock()
	id := byte(s.ID)
	if !s.IPv4.IsValid() {
		s.IPv4 = netip.AddrFrom4([4]byte{203, 0, 113, id})
	}
	if !s.IPv6.IsValid() {
		s.IPv6 = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", id))
	}
	body := schema.LoadBalancer{
		ID: s.ID, Name: s.Name, Labels: s.Labels, Created: s.Created,
		LoadBalancerType: c.types[s.Type], Location: c.locations[s.Location],
		Algorithm: schema.LoadBalancerAlgorithm{Type: string(cmp.Or(s.Algorithm, lb.RoundRobin))},
		PublicNet: schema.LoadBalancerPublicNet{
			Enabled: s.Public,
			IPv4:    schema.LoadBalancerPublicNetIPv4{IP: s.IPv4.String(), DNSPtr: s.IPv4Name},
			IPv6:    schema.LoadBalancerPublicNetIPv6{IP: s.IPv6.String(), DNSPtr: s.IPv6Name},
		},
	}
	if s.Network != 0 {
		if !s.PrivateIP.IsValid() {
			s.PrivateIP = netip.AddrFrom4([4]byte{10, 0, 7, id})
		}
		body.PrivateNet = []schema.LoadBalancerPrivateNet{{Network: s.Network, IP: s.PrivateIP.String()}}
	}
	for _, l := range s.Listeners {
		check := &schema.LoadBalancerServiceHealthCheck{
			Protocol: l.Check.Protocol, Port: l.Check.Port, Interval: int(l.Check.Interval.Seconds()),
			Timeout: int(l.Check.Timeout.Seconds()), Retries: l.Check.Retries,
		}
		if l.Check.Protocol == lb.ProtocolHTTP {
			check.HTTP = &schema.LoadBalancerServiceHealthCheckHTTP{Path: l.Check.Path, StatusCodes: strings.Split(l.Check.StatusCodes, ","), Domain: l.Check.Domain, TLS: l.Check.TLS}
		}
		body.Services = append(body.Services, schema.LoadBalancerService{
			Protocol: l.Protocol, ListenPort: l.Port, DestinationPort: l.DestinationPort,
			Proxyprotocol: l.ProxyProtocol, HTTP: httpOf(l.HTTP), HealthCheck: check,
		})
	}
	for _, t := range s.Targets {
		if t.Address.IsValid() && !t.Pod() {
			body.Targets = append(body.Targets, schema.LoadBalancerTarget{Type: "ip", IP: &schema.LoadBalancerTargetIP{IP: t.Address.String()}})
			continue
		}
		body.Targets = append(body.Targets, schema.LoadBalancerTarget{Type: "server", Server: &schema.LoadBalancerTargetServer{ID: t.Server}, UsePrivateIP: t.Private})
	}
	c.edit(func(project map[string]any) {
		rows := slices.DeleteFunc(project["load_balancers"].([]any), func(row any) bool {
			return row.(map[string]any)["id"].(float64) == float64(s.ID)
		})
		project["load_balancers"] = append(rows, body)
		project["last_id"] = max(project["last_id"].(float64), float64(s.ID))
	})
}

func httpOf(h lb.HTTP) *schema.LoadBalancerServiceHTTP {
	if h == (lb.HTTP{}) {
		return nil
	}
	out := &schema.LoadBalancerServiceHTTP{
		CookieName: h.CookieName, CookieLifetime: int(h.CookieLifetime.Seconds()),
		TimeoutIdle:    int(h.IdleTimeout.Seconds()),
		StickySessions: h.Sticky, RedirectHTTP: h.Redirect,
	}
	for id := range strings.SplitSeq(h.Certificates, ",") {
		if n, err := strconv.ParseInt(id, 10, 64); err == nil {
			out.Certificates = append(out.Certificates, n)
		}
	}
	return out
}

// setFault sets a function that can reject ops; nil removes it.
func (c *cloud) setFault(f func(lb.Op) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// hideCertificates sets the error of all following lists of certificates.
func (c *cloud) hideCertificates(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden = err
}

func (c *cloud) protect(id int64, on bool) {
	c.row("load_balancers", id, func(row map[string]any) { row["protection"] = map[string]any{"delete": on} })
}

// failCertificate marks a managed certificate as one that could not be obtained.
func (c *cloud) failCertificate(id int64, reason string) {
	c.row("certificates", id, func(row map[string]any) {
		row["status"] = map[string]any{"issuance": "failed", "renewal": "unavailable", "error": map[string]any{"code": "dns_zone_not_found", "message": reason}}
	})
}

// addCertificate adds another owner's certificate to the project.
func (c *cloud) addCertificate(name string, domains ...string) int64 {
	op := lb.CreateCertificate{Owner: lb.Owner{Cluster: "somebody", UID: "else"}, Certificate: lb.ManagedCertificate{Name: name, Domains: domains}}
	must(c.client.Apply(context.Background(), lb.State{}, op))
	all, err := c.client.Certificates(context.Background())
	must(err)
	return all[slices.IndexFunc(all, func(cert lb.Certificate) bool { return cert.Name == name })].ID
}

// change edits a load balancer without the controller.
func (c *cloud) change(id int64, change func(*lb.State)) {
	for _, s := range c.all() {
		if s.ID == id {
			change(&s)
			c.put(s)
		}
	}
}

// all returns all load balancers, by ID.
func (c *cloud) all() []lb.State {
	all, err := c.client.All(context.Background())
	must(err)
	for i := range all {
		all[i] = c.judged(all[i])
	}
	slices.SortFunc(all, func(a, b lb.State) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// judged returns the load balancer with the verdicts of the test.
func (c *cloud) judged(s lb.State) lb.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Verdicts, s.Why = map[int]map[lb.Target]lb.Verdict{}, map[int]map[lb.Target]lb.Cause{}
	if c.judge != nil {
		for _, l := range s.Listeners {
			s.Verdicts[l.Port] = make(map[lb.Target]lb.Verdict)
			for _, t := range s.Targets {
				s.Verdicts[l.Port][t] = c.judge(t)
			}
		}
		return s
	}
	for port, verdicts := range c.verdicts[s.ID] {
		s.Verdicts[port], s.Why[port] = make(map[lb.Target]lb.Verdict), make(map[lb.Target]lb.Cause)
		for t, v := range verdicts {
			// A verdict that a test set for a server holds at each of its addresses.
			i := slices.IndexFunc(s.Targets, func(now lb.Target) bool { return t.Compare(now) == 0 })
			if i >= 0 {
				t = s.Targets[i]
			}
			s.Verdicts[port][t], s.Why[port][t] = v, c.cause
		}
	}
	return s
}

// verdicts returns healthy for the first targets, unhealthy for the next ones, and unknown for the
// others.
func verdicts(targets []lb.Target, healthy, unhealthy int) map[lb.Target]lb.Verdict {
	out := make(map[lb.Target]lb.Verdict, len(targets))
	for i, t := range targets {
		switch {
		case i < healthy:
			out[t] = lb.Healthy
		case i < healthy+unhealthy:
			out[t] = lb.Unhealthy
		default:
			out[t] = lb.Unknown
		}
	}
	return out
}

// String prints all load balancers, without the values that the cloud assigns.
func (c *cloud) String() string {
	var b strings.Builder
	for _, s := range c.all() {
		chosen := lb.State{
			Name: s.Name, Type: s.Type, Location: s.Location, Algorithm: s.Algorithm, Public: s.Public,
			Network: s.Network, Listeners: s.Listeners, Targets: s.Targets,
		}
		fmt.Fprintf(&b, "%+v\n", chosen)
	}
	return b.String()
}

// counts returns the number of reads, and the changes, since the last call.
func (c *cloud) counts() (reads int, writes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reads, writes = c.reads, c.writes
	c.reads, c.writes = 0, nil
	return reads, writes
}

func (c *cloud) counted() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return c.hidden
}

func (c *cloud) Carrying(ctx context.Context, owner lb.Owner) ([]lb.State, error) {
	_ = c.counted()
	found, err := c.client.Carrying(ctx, owner)
	for i := range found {
		found[i] = c.judged(found[i])
	}
	return found, err
}

func (c *cloud) Candidates(ctx context.Context, owner lb.Owner, name string) ([]lb.State, error) {
	_ = c.counted()
	found, err := c.client.Candidates(ctx, owner, name)
	for i := range found {
		found[i] = c.judged(found[i])
	}
	return found, err
}

func (c *cloud) List(ctx context.Context, cluster string, periodic bool) ([]lb.State, error) {
	_ = c.counted()
	found, err := c.client.List(ctx, cluster, periodic)
	for i := range found {
		found[i] = c.judged(found[i])
	}
	return found, err
}

func (c *cloud) Certificates(ctx context.Context) ([]lb.Certificate, error) {
	if err := c.counted(); err != nil {
		return nil, err
	}
	return c.client.Certificates(ctx)
}

func (c *cloud) PrimaryIPs(ctx context.Context, named []string) ([]lb.PrimaryIP, error) {
	if err := c.counted(); err != nil {
		return nil, err
	}
	return c.client.PrimaryIPs(ctx, named)
}

func (c *cloud) Apply(ctx context.Context, have lb.State, op lb.Op) error {
	c.mu.Lock()
	c.writes = append(c.writes, op.String())
	fault := c.fault
	c.mu.Unlock()
	if c.watch != nil {
		c.watch(op)
	}
	if c.observe != nil {
		c.observe(have, op)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if fault != nil {
		if err := fault(op); err != nil {
			return err
		}
	}
	return c.client.Apply(ctx, have, op)
}

func (c *cloud) ApplyTargets(ctx context.Context, have lb.State, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		errs[i] = c.Apply(ctx, have, op)
	}
	return errs
}
