package main

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// The start waits for the cloud however long it is unreachable, with growing intervals between
// requests.
func TestALongOutageIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, m := starting(t, "network: cluster\n")
		if err := sim.Inject(hcloudsim.Fault{Times: -1, Status: 503}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- m.reach(t.Context()) }()
		time.Sleep(3 * time.Hour) // on the bubble's clock
		select {
		case err := <-done:
			t.Fatalf("it stopped waiting: %v", err)
		default:
		}
		if n := len(sim.Requests()); n > 3*60*15 {
			t.Errorf("%d requests in three hours of an outage", n)
		}
		sim.ClearFaults()
		if err := <-done; err != nil || m.network == nil {
			t.Errorf("the cloud is back: %v, network %v", err, m.network)
		}
	})
}

// The configuration of load balancers is checked against the cloud's types and locations, with as
// few requests as possible, and not while the cloud doesn't respond.
func TestLoadBalancerSettingsAreCheckedAgainstTheCloud(t *testing.T) {
	for _, c := range []struct {
		name, balancers string
		want            []string // in the error; none: it is valid
		asked           string
	}{
		{"defaults", "{}", nil, ""},
		{"all right", "{location: ash, type: lb21}", nil, "/v1/locations /v1/load_balancer_types"},
		{"a zone", "{networkZone: eu-central}", nil, "/v1/locations"},
		{"no such location", "{location: fsn9}", []string{`loadBalancers.location "fsn9": the cloud has no such location; use one of fsn1, nbg1, hel1, ash, hil, sin`}, "/v1/locations"},
		{"no such zone", "{networkZone: eu-west}", []string{`loadBalancers.networkZone "eu-west": the cloud has no such network zone; use one of ap-southeast, eu-central, us-east, us-west`}, "/v1/locations"},
		{"several", "{location: fsn9, type: lb12}", []string{`"fsn9"`, `loadBalancers.type "lb12": the cloud has no such load balancer type; use one of lb11, lb21, lb31`}, "/v1/locations /v1/load_balancer_types"},
		{"none wanted", "{enabled: false, location: fsn9}", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, m := starting(t, "network: cluster\nloadBalancers: "+c.balancers+"\n")
				if err := sim.Inject(hcloudsim.Fault{Times: -1, Status: 503, Match: "GET /locations"}); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- m.reach(t.Context()) }()
				if strings.Contains(c.asked, "/locations") {
					time.Sleep(time.Hour) // on the bubble's clock
					select {
					case err := <-done:
						t.Fatalf("it doesn't wait for the cloud: %v", err)
					default:
					}
				}
				sim.ClearFaults()
				err := <-done
				sim.ResetRequests()
				if again := m.reach(t.Context()); (again == nil) != (err == nil) {
					t.Errorf("first %v, then %v", err, again)
				}
				var asked []string
				for _, r := range sim.Requests() {
					asked = append(asked, r.Path)
				}
				want := "/v1/networks"
				if len(c.want) > 0 {
					want += " " + c.asked
				}
				if got := strings.Join(asked, " "); got != want {
					t.Errorf("the second time it asks for %q, want %q", got, want)
				}
				if (err == nil) != (len(c.want) == 0) {
					t.Fatalf("got %v, want %q", err, c.want)
				}
				for _, text := range c.want {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("got\n%v\nwant %s", err, text)
					}
				}
			})
		})
	}
}

// starting is a manager with this configuration that has not read the cloud.
func starting(t *testing.T, file string) (*hcloudsim.Simulator, *manager) {
	t.Helper()
	return startingWith(t, config.Flags{"--configure-cloud-routes": "false"}, file)
}

// startingWith is the same with flags.
func startingWith(t *testing.T, flags config.Flags, file string) (*hcloudsim.Simulator, *manager) {
	t.Helper()
	sim := hcloudsim.New(hcloudsim.Options{Token: "right"})
	if _, err := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8")}); err != nil {
		t.Fatal(err)
	}
	client, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
		Registry: metrics.NewKubeRegistry(), Transport: sim.Transport(),
	})
	if err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\n"
	loaded, _, err := config.Load(flags, []byte(head+file), func(name string) string {
		return map[string]string{"HCLOUD_TOKEN": "right-and-long-enough-to-be-a-token"}[name]
	}, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return sim, &manager{config: loaded, client: client}
}
