package conformance_test

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// TestConformance drives everything that the simulator has, twice.
func TestConformance(t *testing.T) {
	sim := hcloudsim.New(hcloudsim.Options{
		Token: "token", RateLimit: hcloudsim.Unlimited,
		OwnedIPs: []netip.Addr{netip.MustParseAddr("192.0.2.7")},
	})
	i := newInspector(t, sim)
	i.way = byClient
	d := &driver{T: t, i: i, c: i.client()}
	d.catalog()
	d.keys()
	n := d.networks()
	a, b := d.servers(n)
	certificate := d.certificates()
	d.floatingIPs(a, b)
	d.serverActions(b)
	d.placementGroups(b)
	d.volumes(a)
	d.firewalls(a)
	d.loadBalancers(n, a, b, certificate)
	d.rest(n, a, certificate)

	i.way = byHand
	d.byHand()
	i.finish()
}

// TestSurface compares what the simulator says it has with what the
// description has.
func TestSurface(t *testing.T) {
	described := loadDescription(t).operations()
	for _, op := range hcloudsim.Operations() {
		name := op.Method + " " + op.Path
		if described[name] != op.Described {
			t.Errorf("%s: the simulator says described=%v, the description itself says %v", name, op.Described, described[name])
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("%s is not simulated", name)
	}
}

// TestDifferencesAreFound makes sure that the comparison compares.
func TestDifferencesAreFound(t *testing.T) {
	d := loadDescription(t)
	tests := []struct {
		method, path, body string
		status             int
		reply              string
		want               finding
	}{
		{"GET", "/locations", "", 200, `{"locations": []}`, finding{"response", "/", "required"}},
		{"GET", "/actions?id=1", "", 200, `{"actions": [{}]}`, finding{"response", "/actions/*", "required"}},
		{"GET", "/actions?id=x", "", 200, `{"actions": []}`, finding{"request", "?id", "invalid syntax"}},
		{"GET", "/locations", "", 404, `{"error": "gone"}`, finding{"response", "/error", "type"}},
		{"PUT", "/networks/7", `{"nmae": "x"}`, 404, `{}`, finding{"response", "/", "required"}},
		{"PUT", "/networks/7", `{"nmae": "x"}`, 200, `{}`, finding{"request", "/", "additionalProperties"}},
		{"DELETE", "/networks/7", "", 200, `{}`, finding{"response", "", "status is not supported"}},
	}
	for _, test := range tests {
		r, err := http.NewRequestWithContext(t.Context(), test.method, endpoint+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response := &http.Response{StatusCode: test.status, Header: http.Header{"Content-Type": {"application/json"}}}
		if found := d.differences(r, []byte(test.body), response,
			[]byte(test.reply)); !slices.Contains(found, test.want) {
			t.Errorf("%s %s %s, %d %s: found %+v, want %+v", test.method, test.path, test.body, test.status, test.reply, found, test.want)
		}
	}
}

// driver uses everything that hcloud-go has. Each of its methods leaves behind
// what the next one needs.
type driver struct {
	*testing.T
	i *inspector
	c *hcloud.Client
}

// must takes the last result of a call, its error.
func (d *driver) must(results ...any) {
	d.Helper()
	if err, failed := results[len(results)-1].(error); failed {
		d.Fatal(err)
	}
}

// refused wants an error of the API, whose shape is validated as well.
func (d *driver) refused(code hcloud.ErrorCode) func(results ...any) {
	return func(results ...any) {
		d.Helper()
		err, _ := results[len(results)-1].(error)
		if !hcloud.IsError(err, code) {
			d.Fatalf("error is %v, want %s", err, code)
		}
	}
}

func ipNet(text string) *net.IPNet {
	_, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return n
}

// filters are the ways to ask for a listing.
func filters(name string) hcloud.ListOpts {
	return hcloud.ListOpts{Page: 1, PerPage: 10, LabelSelector: "!" + name}
}

func (d *driver) catalog() {
	ctx := d.Context()
	d.must(d.c.Location.List(ctx, hcloud.LocationListOpts{Name: "fsn1", Sort: []string{"name:desc"}}))
	d.must(d.c.Location.GetByID(ctx, 1))
	d.must(d.c.ServerType.List(ctx, hcloud.ServerTypeListOpts{Name: "cx22"}))
	d.must(d.c.ServerType.GetByID(ctx, 104))
	d.must(d.c.LoadBalancerType.List(ctx, hcloud.LoadBalancerTypeListOpts{Name: "lb11"}))
	d.must(d.c.LoadBalancerType.GetByID(ctx, 1))
	d.must(d.c.Pricing.Get(ctx))
	d.must(d.c.ISO.List(ctx, hcloud.ISOListOpts{
		Architecture: []hcloud.Architecture{hcloud.ArchitectureARM},
	}))
	d.must(d.c.ISO.GetByID(ctx, 1))
	d.must(d.c.Zone.List(ctx, hcloud.ZoneListOpts{}))
	d.must(d.c.StorageBox.List(ctx, hcloud.StorageBoxListOpts{}))
	d.must(d.c.Image.List(ctx, hcloud.ImageListOpts{
		Name: "debian-12", Type: []hcloud.ImageType{hcloud.ImageTypeSystem}, Architecture: []hcloud.Architecture{hcloud.ArchitectureX86},
		Status: []hcloud.ImageStatus{hcloud.ImageStatusAvailable}, Sort: []string{"id"}, IncludeDeprecated: true,
	}))
	image, _, err := d.c.Image.GetForArchitecture(ctx, "ubuntu-24.04", hcloud.ArchitectureARM)
	d.must(err)
	d.must(d.c.Image.GetByID(ctx, image.ID))
	d.refused(hcloud.ErrorCodeInvalidInput)(d.c.Location.List(ctx, hcloud.LocationListOpts{Sort: []string{"color"}}))
}

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f somebody"

func (d *driver) keys() {
	ctx := d.Context()
	key, _, err := d.c.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{Name: "key", PublicKey: publicKey, Labels: map[string]string{"a": "b"}})
	d.must(err)
	found, _, err := d.c.SSHKey.GetByFingerprint(ctx, key.Fingerprint)
	d.must(err)
	if found == nil || found.ID != key.ID {
		d.Errorf("key by fingerprint is %+v", found)
	}
	d.must(d.c.SSHKey.GetByID(ctx, key.ID))
	d.must(d.c.SSHKey.Update(ctx, key, hcloud.SSHKeyUpdateOpts{Name: "renamed"}))
	d.refused(hcloud.ErrorCodeUniquenessError)(d.c.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{Name: "other", PublicKey: publicKey}))
}

// rest takes everything away again, and asks for the actions of all.
func (d *driver) rest(n *hcloud.Network, s *hcloud.Server, certificate *hcloud.Certificate) {
	ctx := d.Context()
	opts := hcloud.ActionListOpts{Status: []hcloud.ActionStatus{hcloud.ActionStatusSuccess}, Sort: []string{"started:desc"}, ListOpts: hcloud.ListOpts{PerPage: 5}}
	week := hcloud.ServerGetMetricsOpts{
		Types: []hcloud.ServerMetricType{
			hcloud.ServerMetricCPU, hcloud.ServerMetricDisk, hcloud.ServerMetricNetwork,
		},
		Start: time.Now().Add(-7 * 24 * time.Hour), End: time.Now().Add(time.Hour), Step: 1,
	}
	d.must(d.c.Server.GetMetrics(ctx, s, week))
	servers, _, err := d.c.Server.Action.ListFor(ctx, s, opts)
	d.must(err)
	d.must(d.c.Server.Action.List(ctx, opts))
	d.must(d.c.Server.Action.GetByID(ctx, servers[0].ID))
	networks, _, err := d.c.Network.Action.ListFor(ctx, n, opts)
	d.must(err)
	d.must(d.c.Network.Action.List(ctx, opts))
	d.must(d.c.Network.Action.GetByID(ctx, networks[0].ID))
	certificates, _, err := d.c.Certificate.Action.ListFor(ctx, certificate, opts)
	d.must(err)
	d.must(d.c.Certificate.Action.List(ctx, opts))
	d.must(d.c.Certificate.Action.GetByID(ctx, certificates[0].ID))
	d.must(d.c.Action.GetByID(ctx, servers[0].ID))
	d.must(d.c.Action.List(ctx, hcloud.ActionListOpts{ID: []int64{servers[0].ID, networks[0].ID}}))

	d.must(d.c.Certificate.Delete(ctx, certificate))
	d.must(d.c.Server.DeleteWithResult(ctx, s))
	d.refused(hcloud.ErrorCodeProtected)(d.c.Network.Delete(ctx, n))
	d.must(d.c.Network.ChangeProtection(ctx, n, hcloud.NetworkChangeProtectionOpts{
		Delete: hcloud.Ptr(false),
	}))
	d.must(d.c.Network.Delete(ctx, n))
	keys, err := d.c.SSHKey.All(ctx)
	d.must(err)
	d.must(d.c.SSHKey.Delete(ctx, keys[0]))
}
