package project_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

func TestNewRefuses(t *testing.T) {
	good := project.Options{Token: secret.New(token), Run: run, Endpoint: endpoint}
	for _, row := range []struct {
		change func(*project.Options)
		says   string
	}{
		{func(o *project.Options) { o.Token = secret.Text{} }, "the token is empty"},
		{func(o *project.Options) { o.Token = secret.New("two words") }, "the token holds a space"},
		{func(o *project.Options) { o.Run = "" }, `run "" is no name`},
		{func(o *project.Options) { o.Run = "Prod_1" }, `run "Prod_1" is no name`},
		{func(o *project.Options) { o.Run = strings.Repeat("a", 25) }, "is no name"},
		{func(o *project.Options) { o.Endpoint = "api.hetzner.cloud" }, "no URL such as https://"},
		{func(o *project.Options) { o.Endpoint = "https://me:hidden@cloud.test/v1" }, "cloud.test"},
		{func(o *project.Options) { o.Endpoint = "https://cloud.test/v1?x=hidden" }, "cloud.test"},
	} {
		o := good
		row.change(&o)
		_, err := project.New(o)
		if err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "two words") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, e := range []string{"", endpoint, endpoint + "/", "http://127.0.0.1:8470/v1"} {
		o := good
		o.Endpoint = e
		_, err := project.New(o)
		noError(t, err)
	}
}

func TestNewRun(t *testing.T) {
	at := time.Date(2026, 11, 24, 9, 30, 12, 0, time.FixedZone("", 3600))
	name, err := project.NewRun(at, bytes.NewReader([]byte{0x4f, 0x09, 0xa1}))
	noError(t, err)
	if name != "20261124-0830-4f09a1" {
		t.Errorf("the run is named %s", name)
	}
	_, err = project.New(project.Options{Token: secret.New(token), Run: name})
	noError(t, err)
}

func TestTokenIsNotShown(t *testing.T) {
	o := project.Options{Token: secret.New(token), Run: run}
	hidden := struct{ options project.Options }{o} // where fmt can't call a method
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("options", "token", o.Token, "all", o.Plan)
	encoded, err := json.Marshal(o.Token)
	noError(t, err)
	for _, text := range []string{
		fmt.Sprint(o), fmt.Sprintf("%+v", o), fmt.Sprintf("%#v", o), fmt.Sprintf("%x", o.Token), fmt.Sprintf("%q", o.Token),
		fmt.Sprintf("%v %+v %#v", hidden, hidden, hidden), logged.String(), string(encoded),
	} {
		if strings.Contains(text, token) || strings.Contains(text, fmt.Sprintf("%x", token)) {
			t.Errorf("the token is in %s", text)
		}
	}
}

// The token goes to the endpoint alone, in the one header where it belongs, and nothing else of a
// request's headers goes anywhere.
func TestWhatIsSent(t *testing.T) {
	var got []*http.Request
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r) }))
	defer elsewhere.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("authorization is %q", r.Header.Get("Authorization"))
		}
		if r.Header.Get("X-HTTP-Method-Override") != "" || r.Host == "other.test" {
			t.Errorf("sent is %v to %s", r.Header, r.Host)
		}
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer api.Close()
	p, err := project.New(project.Options{Token: secret.New(token), Endpoint: api.URL + "/v1", Run: run, Plan: plan()})
	noError(t, err)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/v1/servers/1", nil)
	noError(t, err)
	r.Header.Set("X-HTTP-Method-Override", "DELETE")
	r.Host = "other.test"
	_, _ = roundTrip(p, r)
	_, _, _ = p.Client().Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: p.Name("n"), Labels: p.Labels(), IPRange: ipNet("10.0.0.0/8")})
	for _, url := range []string{elsewhere.URL + "/v1/servers", api.URL + "/v2/servers", api.URL + "/servers", strings.Replace(api.URL, "http://", "http://me@", 1) + "/v1/servers"} {
		if _, err := try(p, "GET", url, ""); !errors.Is(err, project.ErrRefused) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if len(got) > 0 {
		t.Errorf("%d requests went elsewhere: %v", len(got), got[0].Header)
	}
}

// What may have been made counts, and what was refused does not.
func TestThePlanIsKept(t *testing.T) {
	for name, row := range map[string]struct {
		fault hcloudsim.Fault
		more  int // that can be made afterwards, of three
	}{
		"made":            {hcloudsim.Fault{Delay: time.Second}, 2},
		"refused":         {hcloudsim.Fault{Code: "resource_limit_exceeded"}, 3},
		"rate limit":      {hcloudsim.Fault{Code: "rate_limit_exceeded"}, 3},
		"reply lost":      {hcloudsim.Fault{DropAfterApply: true}, 2},
		"not known":       {hcloudsim.Fault{DropBeforeApply: true}, 2},
		"torn":            {hcloudsim.Fault{TornBody: true}, 2},
		"error, but done": {hcloudsim.Fault{Code: "server_error", Applied: true}, 2},
		"from a proxy":    {hcloudsim.Fault{NotJSON: true, Status: 403, Applied: true}, 2},
	} {
		inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
			p := w.project(nil)
			create := func(i int) error {
				_, _, err := p.Client().Network.Create(t.Context(), hcloud.NetworkCreateOpts{
					Name: p.Name(fmt.Sprint("n", i)), Labels: p.Labels(), IPRange: ipNet("10.0.0.0/8"),
				})
				return err
			}
			noError(t, w.sim.Inject(row.fault))
			_ = create(0)
			made := 0
			for i := range 5 {
				switch err := create(i + 1); {
				case err == nil:
					made++
				case !errors.Is(err, project.ErrRefused) || !strings.Contains(err.Error(), "plan"):
					t.Errorf("%s: %v", name, err)
				}
			}
			if made != row.more {
				t.Errorf("%s: %d more were made, want %d", name, made, row.more)
			}
			_, err := p.Sweep(t.Context())
			noError(t, err)
			w.empty()
		})
	}
}

// Without a plan nothing is made, whatever it costs.
func TestNoPlan(t *testing.T) {
	inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
		p, err := project.New(project.Options{Token: secret.New(token), Endpoint: endpoint, Transport: w.sim.Transport(), Run: run})
		noError(t, err)
		if _, err := furnish(t.Context(), p); !errors.Is(err, project.ErrRefused) {
			t.Errorf("%v", err)
		}
		w.direct("DELETE", "/ssh_keys/"+fmt.Sprint(w.key+2), "") // a key costs nothing
		_, err = p.Sweep(t.Context())
		noError(t, err)
		w.empty()
	})
}

func TestExistingAndLeftovers(t *testing.T) {
	inProject(t, hcloudsim.Options{RateLimit: hcloudsim.Unlimited}, func(t *testing.T, w *world) {
		p := w.project(nil)
		// Primary IPs: one of its own, and two each that came with the load balancer and with three
		// servers, one of which bears the label. What bears it isn't counted, whoever gave it that.
		want := measure.Things{Servers: 2, Networks: 1, LoadBalancers: 1, FloatingIPs: 1, PrimaryIPs: 9}
		existing, err := p.Existing(t.Context())
		noError(t, err)
		if existing != want {
			t.Errorf("there are %+v, want %+v", existing, want)
		}
		began := time.Now()
		_, err = furnish(t.Context(), p)
		noError(t, err)
		left, err := p.Leftovers(t.Context())
		noError(t, err)
		mine := measure.Things{Servers: 2, Networks: 1, LoadBalancers: 1, FloatingIPs: 1, PrimaryIPs: 1}
		if len(left) != 2 || left[0].Run != otherRun || left[0].Things != (measure.Things{Networks: 1}) ||
			left[1].Run != run || left[1].Things != mine || left[1].SSHKeys != 1 ||
			left[0].Since.After(began) || left[1].Since.Before(began) || left[1].Until.Before(left[1].Since) {
			t.Errorf("left are %+v", left)
		}
		if spared := p.Spared(); len(spared) != 1 || spared[0].Name != "prod-2" {
			t.Errorf("beside them there are %v", spared)
		}
		for i := range 60 { // more than a page
			w.make("/floating_ips", fmt.Sprintf(`{"type": "ipv4", "name": "more-%d", "home_location": "nbg1"}`, i))
		}
		existing, err = p.Existing(t.Context())
		noError(t, err)
		if existing.FloatingIPs != 61 {
			t.Errorf("%d floating IPs are counted", existing.FloatingIPs)
		}
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "GET /floating_ips", Code: "server_error", Times: -1}))
		if _, err := p.Leftovers(t.Context()); err == nil {
			t.Error("half of what is left is no answer")
		}
		if _, err := p.Existing(t.Context()); err == nil {
			t.Error("half of what there is is no answer")
		}
	})
}

// Lists of more than a page are swept.
func TestSweepOfManyPages(t *testing.T) {
	inProject(t, hcloudsim.Options{RateLimit: hcloudsim.Unlimited}, func(t *testing.T, w *world) {
		theirs := w.theirs
		for i := range 120 {
			w.make("/networks", fmt.Sprintf(`{"name": "underlay-measure-%s-%d", "ip_range": "10.0.0.0/8", "labels": {%q: %q}}`, run, i, project.Label, run))
		}
		w.theirs = theirs
		left, err := w.project(nil).Leftovers(t.Context())
		noError(t, err)
		if len(left) != 2 || left[1].Networks != 120 {
			t.Errorf("left are %+v", left)
		}
		removed, err := w.project(nil).Sweep(t.Context())
		noError(t, err)
		if removed.Networks != 120 {
			t.Errorf("removed %+v", removed)
		}
		w.empty()
	})
}

func TestCheckToken(t *testing.T) {
	for name, row := range map[string]struct {
		fault hcloudsim.Fault
		says  string // "" : it may write
	}{
		"reads and writes": {},
		"reads only":       {hcloudsim.Fault{Match: "POST /networks", Status: 401, Code: "token_readonly"}, "may only read"},
		"forbidden":        {hcloudsim.Fault{Match: "POST /networks", Code: "forbidden"}, "may only read"},
		"wrong":            {hcloudsim.Fault{Code: "unauthorized"}, "refuses the token"},
		"another path":     {hcloudsim.Fault{Code: "not_found"}, "as in https://api.hetzner.cloud/v1"},
		"unreachable":      {hcloudsim.Fault{DropBeforeApply: true}, "asking the API"},
		"broken":           {hcloudsim.Fault{Match: "POST /networks", Code: "server_error"}, "trying whether"},
	} {
		inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
			if row.says != "" {
				noError(t, w.sim.Inject(row.fault))
			}
			err := w.project(nil).CheckToken(t.Context())
			if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s: %v", name, err)
			}
			w.empty()
		})
	}
	// Nothing may be made: a token that only reads is enough. Whatever else is made: it is not.
	for _, things := range []measure.Things{{}, {Servers: 1}, {LoadBalancers: 2, PrimaryIPs: 2}, {FloatingIPs: 1}} {
		inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
			noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /networks", Status: 401, Code: "token_readonly"}))
			p, err := project.New(project.Options{
				Token: secret.New(token), Endpoint: endpoint, Transport: w.sim.Transport(), Run: run, Plan: project.Plan{Things: things},
			})
			noError(t, err)
			if err := p.CheckToken(t.Context()); (err == nil) != (things == measure.Things{}) {
				t.Errorf("%s: %v", things, err)
			}
		})
	}
	// An API that makes what can't be is none to be measured, and what it made can be removed.
	body := fmt.Sprintf(`{"network": {"id": 7, "name": "underlay-measure-%s-nothing", "labels": {%q: %q}}}`, run, project.Label, run)
	p, err := project.New(project.Options{Token: secret.New(token), Endpoint: endpoint, Run: run, Plan: plan(), Transport: replying(201, body)})
	noError(t, err)
	if err := p.CheckToken(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestPrices(t *testing.T) {
	inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
		p := w.project(nil)
		prices, err := p.Prices(t.Context(), "nbg1")
		noError(t, err)
		if prices.Location != "nbg1" || prices.Currency != "EUR" || prices.IPv4 == nil || prices.IPv4.Hourly == 0 || prices.FloatingIP == nil || prices.FloatingIP.Monthly == 0 || prices.FloatingIP.Hourly != 0 {
			t.Errorf("prices are %+v", prices)
		}
		list, _, err := p.Client().LoadBalancerType.GetByName(t.Context(), "lb11")
		noError(t, err)
		hourly, err := measure.ParseMoney(list.Pricings[1].Hourly.Gross)
		noError(t, err)
		if prices.LoadBalancers["lb11"].Hourly != hourly || hourly == 0 || len(prices.LoadBalancers) != 3 {
			t.Errorf("load balancers cost %+v", prices.LoadBalancers)
		}
		cheapest, err := prices.Cheapest("x86")
		noError(t, err)
		arm, err := prices.Cheapest("arm")
		noError(t, err)
		if cheapest.Name != "cx23" || cheapest.Price.Hourly == 0 || cheapest.Price.Monthly <= cheapest.Price.Hourly || arm.Name != "cax11" {
			t.Errorf("the cheapest are %+v and %+v", cheapest, arm)
		}
		elsewhere, err := p.Prices(t.Context(), "ash")
		noError(t, err)
		if _, err := elsewhere.Cheapest("arm"); err == nil || reflect.DeepEqual(elsewhere, prices) {
			t.Error("what is sold in Europe alone is sold elsewhere")
		}
		if _, err := p.Prices(t.Context(), "atlantis"); err == nil || !strings.Contains(err.Error(), "atlantis") {
			t.Errorf("no location: %v", err)
		}
	})
}

// Types that are on the way out, or sold out, aren't offered.
func TestPricesOfWhatCanBeHad(t *testing.T) {
	kind := func(name, more, where string) string {
		return fmt.Sprintf(`{"id": 1, "name": %q, "architecture": "x86"%s, "locations": [{"id": 2, "name": "nbg1"%s}], "prices": [{"location": "nbg1", "price_hourly": {"net": "0.01", "gross": "0.0119"}, "price_monthly": {"net": "6", "gross": "7.14"}}]}`, name, more, where)
	}
	const gone = `, "deprecation": {"announced": "2026-01-01T00:00:00Z", "unavailable_after": "2026-04-01T00:00:00Z"}`
	for name, row := range map[string]struct{ types, want string }{
		"all of them": {kind("a", "", `, "available": true`) + "," + kind("b", "", `, "available": true`), "a b"},
		"sold out":    {kind("a", "", `, "available": true`) + "," + kind("b", "", `, "available": false`), "a"},
		"going":       {kind("a", gone, `, "available": true`) + "," + kind("b", "", `, "available": true`+gone) + "," + kind("c", "", `, "available": true`), "c"},
		"not told":    {kind("a", "", "") + "," + kind("b", gone, ""), "a"},
	} {
		p, err := project.New(project.Options{Token: secret.New(token), Endpoint: endpoint, Run: run, Transport: replying(200, `{"pricing": {"currency": "EUR"}, "server_types": [`+row.types+`]}`)})
		noError(t, err)
		prices, err := p.Prices(t.Context(), "nbg1")
		noError(t, err)
		var names []string
		for _, s := range prices.Servers {
			names = append(names, s.Name)
			if s.Price.Hourly != 11_900 || s.Price.Monthly != 7_140_000 {
				t.Errorf("%s costs %+v", s.Name, s.Price)
			}
		}
		if got := strings.Join(names, " "); got != row.want {
			t.Errorf("%s: on offer are %s, want %s", name, got, row.want)
		}
	}
}

// What the list leaves out, or has without an amount, is not free.
func TestPricesThatAreMissing(t *testing.T) {
	const amounts = `, "price_hourly": {"net": "0.01", "gross": "0.0119"}, "price_monthly": {"net": "6", "gross": "7.14"}`
	const none = `, "price_hourly": {"net": "", "gross": ""}, "price_monthly": {"net": "", "gross": ""}`
	for name, row := range map[string]struct{ at, amounts string }{
		"all of them":      {"nbg1", amounts},
		"in another place": {"ash", amounts},
		"no amounts":       {"nbg1", none},
	} {
		rows := fmt.Sprintf(`[{"location": %q%s}]`, row.at, row.amounts)
		list := fmt.Sprintf(`{"pricing": {"currency": "EUR",
			"server_types": [{"id": 1, "name": "a", "prices": %[1]s}], "load_balancer_types": [{"id": 1, "name": "lb", "prices": %[1]s}],
			"primary_ips": [{"type": "ipv4", "prices": %[1]s}], "floating_ips": [{"type": "ipv6", "prices": %[1]s}]},
			"server_types": [
				{"id": 1, "name": "a", "architecture": "x86", "locations": [{"id": 2, "name": "nbg1"}]},
				{"id": 2, "name": "b", "architecture": "x86", "locations": [{"id": 2, "name": "nbg1"}], "prices": [{"location": "nbg1"%[2]s}]}]}`, rows, amounts)
		p, err := project.New(project.Options{Token: secret.New(token), Endpoint: endpoint, Run: run, Transport: replying(200, list)})
		noError(t, err)
		prices, err := p.Prices(t.Context(), "nbg1")
		noError(t, err)
		priced := name == "all of them"
		if len(prices.Servers) != map[bool]int{true: 2, false: 1}[priced] || len(prices.LoadBalancers) == 1 != priced ||
			(prices.IPv4 != nil) != priced || (prices.FloatingIP != nil) != priced {
			t.Errorf("%s: %+v", name, prices)
		}
	}
}
