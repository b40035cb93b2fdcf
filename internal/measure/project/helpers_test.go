package project_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

const (
	endpoint = "https://cloud.test/v1"
	token    = "very-secret-token"
)

// world is a project with something of somebody else's in it, on the clock of a bubble.
type world struct {
	t      *testing.T
	sim    *hcloudsim.Simulator
	before string
}

// inProject tests with a project in which others have things.
func inProject(t *testing.T, options hcloudsim.Options, do func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { do(t, newWorld(t, options)) })
}

func newWorld(t *testing.T, options hcloudsim.Options) *world {
	t.Helper()
	options.Token = token
	w := &world{t: t, sim: hcloudsim.New(options)}
	network := w.make("/networks", `{"name": "prod", "ip_range": "10.0.0.0/8", "subnets": [{"type": "cloud", "ip_range": "10.0.0.0/16", "network_zone": "eu-central"}], "labels": {"env": "prod"}}`)
	server := w.make("/servers", fmt.Sprintf(`{"name": "prod-1", "server_type": "cx23", "image": "debian-12", "location": "nbg1", "networks": [%d]}`, network))
	// Labelled like what is made here, by somebody who copies labels, and named like it.
	w.make("/servers", fmt.Sprintf(`{"name": "prod-2", "server_type": "cx23", "image": "debian-12", "location": "nbg1", "labels": {%q: ""}}`, project.Label))
	w.make("/servers", `{"name": "underlay-measure-x", "server_type": "cx23", "image": "debian-12", "location": "nbg1"}`)
	w.settle()
	w.make("/load_balancers", fmt.Sprintf(`{"name": "prod", "load_balancer_type": "lb11", "location": "nbg1", "network": %d, "targets": [{"type": "server", "server": {"id": %d}, "use_private_ip": true}]}`, network, server))
	w.make("/floating_ips", fmt.Sprintf(`{"type": "ipv4", "name": "prod", "server": %d}`, server))
	w.make("/primary_ips", `{"type": "ipv4", "name": "prod", "location": "nbg1"}`)
	w.make("/ssh_keys", `{"name": "admin", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`)
	w.settle()
	w.before = w.photo()
	w.sim.ResetRequests()
	return w
}

func (w *world) settle() { time.Sleep(time.Minute) }

// direct sends a request as anybody else in the project does.
func (w *world) direct(method, path, body string) (int, []byte) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, endpoint+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := w.sim.Transport().RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, text
}

// make makes something of somebody else's.
func (w *world) make(path, body string) int64 {
	w.t.Helper()
	status, text := w.direct("POST", path, body)
	var reply map[string]json.RawMessage
	if err := json.Unmarshal(text, &reply); err != nil || status != http.StatusCreated {
		w.t.Fatalf("POST %s: %d %s", path, status, text)
	}
	var made struct{ ID int64 }
	if err := json.Unmarshal(reply[strings.TrimSuffix(path[1:], "s")], &made); err != nil || made.ID == 0 {
		w.t.Fatalf("POST %s: %s", path, text)
	}
	return made.ID
}

// photo shows everything that the project has.
func (w *world) photo() string {
	w.t.Helper()
	var all bytes.Buffer
	for _, kind := range []string{"servers", "networks", "load_balancers", "floating_ips", "primary_ips", "ssh_keys", "certificates"} {
		_, text := w.direct("GET", "/"+kind+"?per_page=50", "")
		all.Write(text)
	}
	return all.String()
}

// empty fails the test unless the project is as it was before the run.
func (w *world) empty() {
	w.t.Helper()
	if now := w.photo(); now != w.before {
		w.t.Errorf("the project is not as it was before\n%s\nbut\n%s", w.before, now)
	}
}

// project is one whose way to the API is through a transport, if that isn't nil.
func (w *world) project(through func(http.RoundTripper) http.RoundTripper) *project.Project {
	w.t.Helper()
	way := w.sim.Transport()
	if through != nil {
		way = through(way)
	}
	return project.New(project.Options{Token: secret.New(token), Endpoint: endpoint, Transport: way, Version: "test"})
}

// things are what furnish has made.
type things struct {
	net      *hcloud.Network
	servers  []*hcloud.Server
	balancer *hcloud.LoadBalancer
	floating *hcloud.FloatingIP
	primary  *hcloud.PrimaryIP
}

// furnish makes one of everything, all connected, as far as the API lets it.
func furnish(ctx context.Context, p *project.Project) (made things, err error) {
	var errs []error
	note := func(e error) bool {
		if e != nil {
			errs = append(errs, e)
		}
		return e == nil
	}
	await := func(a *hcloud.Action) {
		_, _, err := p.Await(ctx, a)
		note(err)
	}
	c := p.Client()
	n, _, err := c.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: p.Name("net"), Labels: p.Labels(), IPRange: ipNet("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet("10.0.0.0/24"), NetworkZone: hcloud.NetworkZoneEUCentral}},
	})
	if note(err) {
		made.net = n
	}
	key, err := p.Key(ctx)
	note(err)
	for i := range 2 {
		o := hcloud.ServerCreateOpts{
			Name: p.Name(fmt.Sprintf("s%d", i)), Labels: p.Labels(), ServerType: &hcloud.ServerType{Name: "cx23"},
			Image: &hcloud.Image{Name: "debian-12"}, Location: &hcloud.Location{Name: "nbg1"},
		}
		if made.net != nil {
			o.Networks = []*hcloud.Network{made.net}
		}
		if key != nil {
			o.SSHKeys = []*hcloud.SSHKey{key}
		}
		s, _, err := c.Server.Create(ctx, o)
		if !note(err) {
			continue
		}
		made.servers = append(made.servers, s.Server)
		for _, a := range append(s.NextActions, s.Action) {
			await(a)
		}
	}
	made.furnishAddresses(ctx, p, note, await)
	if made.net != nil {
		o := hcloud.LoadBalancerCreateOpts{
			Name: p.Name("lb"), Labels: p.Labels(), LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"},
			Location: &hcloud.Location{Name: "nbg1"}, Network: made.net,
		}
		if made.primary != nil {
			o.PublicNet = &hcloud.LoadBalancerCreateOptsPublicNet{IPv6: made.primary}
		}
		if lb, _, err := c.LoadBalancer.Create(ctx, o); note(err) {
			made.balancer = lb.LoadBalancer
			await(lb.Action)
		}
	}
	if made.balancer != nil && len(made.servers) > 0 {
		if a, _, err := c.LoadBalancer.AddServerTarget(ctx, made.balancer, hcloud.LoadBalancerAddServerTargetOpts{Server: made.servers[0]}); note(err) {
			await(a)
		}
	}
	return made, joined(errs)
}

func (made *things) furnishAddresses(ctx context.Context, p *project.Project, note func(error) bool, await func(*hcloud.Action)) {
	c := p.Client()
	if len(made.servers) > 0 {
		f, _, err := c.FloatingIP.Create(ctx, hcloud.FloatingIPCreateOpts{
			Name: hcloud.Ptr(p.Name("f")), Labels: p.Labels(), Type: hcloud.FloatingIPTypeIPv6, Server: made.servers[0],
		})
		if note(err) {
			made.floating = f.FloatingIP
			await(f.Action)
		}
	}
	k, _, err := c.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{
		Name: p.Name("k"), Labels: p.Labels(), Type: hcloud.PrimaryIPTypeIPv6, Location: "nbg1",
	})
	if note(err) {
		made.primary = k.PrimaryIP
		await(k.Action)
	}
}

func joined(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// way is a transport that is a function.
type way func(*http.Request) (*http.Response, error)

func (w way) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// ipNet is a prefix, as hcloud-go has it.
func ipNet(text string) *net.IPNet {
	_, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return n
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
