package experiment

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// watched does something before each POST whose path ends with an end.
type watched struct {
	next http.RoundTripper
	end  string
	do   func(*http.Request)
}

func (w watched) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, w.end) {
		w.do(q)
	}
	return w.next.RoundTrip(q)
}

// isUnsure fails the test if an observation is an answer, or its reason isn't what is wanted.
func isUnsure(t *testing.T, o measure.Observation, why string) {
	t.Helper()
	if o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, why) {
		t.Errorf("%s: want no answer, and a reason with %q", describe(o), why)
	}
}

// TestErrorsBySideAreNoAnswer has errors that an answer could be taken from.
func TestErrorsBySideAreNoAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		fact  measure.FactID
		fault hcloudsim.Fault
		why   string
	}{
		"a server isn't detached": {
			measure.AddressReuse,
			hcloudsim.Fault{Match: "POST /servers/{id}/actions/detach_from_network", Code: "server_error"},
			"server_error",
		},
		"a server's detaching fails": {
			measure.AddressReuse,
			hcloudsim.Fault{Match: "POST /servers/{id}/actions/detach_from_network", FailAction: "oops"},
			"oops",
		},
		"a load balancer is refused in the zone and in the location": {
			measure.ZonePrimaryIPs,
			hcloudsim.Fault{Match: "POST /load_balancers", Code: "invalid_input", Times: -1},
			"invalid_input",
		},
		"a primary IP is refused in the zone and in the location": {
			measure.ZonePrimaryIPs,
			hcloudsim.Fault{Match: "POST /load_balancers", Code: "primary_ip_version_mismatch", Times: -1},
			"primary_ip_version_mismatch",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := hcloudsim.New(like(nil))
				if err := sim.Inject(tt.fault); err != nil {
					t.Fatal(err)
				}
				b := benchOf(projectOver(t, sim.Transport()))
				isUnsure(t, Run(t.Context(), b, []measure.FactID{tt.fact})[0], tt.why)
			})
		})
	}
}

// TestOneRefusalIsNotTheZones has a load balancer refused once, and not for its zone.
func TestOneRefusalIsNotTheZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		err := sim.Inject(hcloudsim.Fault{Match: "POST /load_balancers", Code: "invalid_input"})
		if err != nil {
			t.Fatal(err)
		}
		b := benchOf(projectOver(t, sim.Transport()))
		o := Run(t.Context(), b, []measure.FactID{measure.ZonePrimaryIPs})[0]
		if o.Seen != measure.WherePrimaryIPs {
			t.Error(describe(o))
		}
	})
}

// TestAnAddressThatIsFreedLate has somebody keep the first address for a while that is given back,
// so that the next server gets the next.
func TestAnAddressThatIsFreedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		attached := 0
		keep := func(*http.Request) {
			if attached++; attached != 2 {
				return
			}
			for _, n := range sim.Networks() {
				if n.IPRange != numbered(201).Range.String() {
					continue
				}
				s, err := sim.CreateServer(hcloudsim.ServerSeed{Name: "address", Network: n.ID})
				if err != nil {
					t.Error(err)
					return
				}
				time.AfterFunc(freed/2, func() {
					if err := sim.DeleteServer(s.ID); err != nil {
						t.Error(err)
					}
				})
			}
		}
		way := watched{sim.Transport(), "/actions/attach_to_network", keep}
		b := benchOf(projectOver(t, way))
		o := Run(t.Context(), b, []measure.FactID{measure.AddressReuse})[0]
		isUnsure(t, o, measure.InTurn+", then an earlier one")
	})
}

// TestAnAPIThatLooksAtTheServerAlone takes no notice of an address of a target.
func TestAnAPIThatLooksAtTheServerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		forget := func(q *http.Request) {
			body, err := io.ReadAll(q.Body)
			if err != nil {
				t.Error(err)
			}
			body = bytes.ReplaceAll(body, []byte(`"ip":`), []byte(`"unknown":`))
			q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		way := watched{watched{sim.Transport(), "/add_target", forget}, "/remove_target", forget}
		b := benchOf(projectOver(t, way))
		o := Run(t.Context(), b, []measure.FactID{measure.TargetsPerServer})[0]
		isUnsure(t, o, "doesn't show")
	})
}

// TestATargetThatIsRefusedOnce is taken the other way round.
func TestATargetThatIsRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		added := 0
		refuse := func(*http.Request) {
			if added++; added != 2 {
				return
			}
			err := sim.Inject(hcloudsim.Fault{
				Match: "POST /load_balancers/{id}/actions/add_target", Code: "target_already_defined",
			})
			if err != nil {
				t.Error(err)
			}
		}
		b := benchOf(projectOver(t, watched{sim.Transport(), "/add_target", refuse}))
		o := Run(t.Context(), b, []measure.FactID{measure.TargetsPerServer})[0]
		isUnsure(t, o, "not the other way round")
	})
}

// TestActionsThatFailAreToldApart has a request that is taken, and whose action fails.
func TestActionsThatFailAreToldApart(t *testing.T) {
	for code, seen := range map[string]string{
		"service_error": "taken, and its action fails: service_error", "action_failed": "",
	} {
		synctest.Test(t, func(t *testing.T) {
			sim := hcloudsim.New(like(nil))
			assigned := 0
			fail := func(*http.Request) {
				if assigned++; assigned != 2 {
					return
				}
				err := sim.Inject(hcloudsim.Fault{
					Match: "POST /floating_ips/{id}/actions/assign", FailAction: code,
				})
				if err != nil {
					t.Error(err)
				}
			}
			b := benchOf(projectOver(t, watched{sim.Transport(), "/assign", fail}))
			o := Run(t.Context(), b, []measure.FactID{measure.FloatingReassign})[0]
			if o.Seen != seen || o.Record != nil || seen == "" && !strings.Contains(o.Why, code) {
				t.Errorf("with %s: %s", code, describe(o))
			}
		})
	}
}

// TestTheZonesRefusalIsAnAnswer refuses load balancers in a zone whose primary IP is in the second
// of the locations that are tried.
func TestTheZonesRefusalIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		zones := 0
		refuse := func(q *http.Request) {
			body, err := io.ReadAll(q.Body)
			if err != nil {
				t.Error(err)
			}
			q.Body = io.NopCloser(bytes.NewReader(body))
			if !bytes.Contains(body, []byte(`"network_zone"`)) {
				return
			}
			if zones++; zones > 1 {
				err := sim.Inject(hcloudsim.Fault{Match: "POST /load_balancers", Code: "invalid_input"})
				if err != nil {
					t.Error(err)
				}
			}
		}
		p := projectOver(t, watched{sim.Transport(), "/load_balancers", refuse})
		o := Run(t.Context(), benchOf(p), []measure.FactID{measure.ZonePrimaryIPs})[0]
		if o.Seen != measure.ZonesFirst || o.Record == nil || !strings.Contains(o.Note, "invalid_input") {
			t.Error(describe(o))
		}
	})
}
