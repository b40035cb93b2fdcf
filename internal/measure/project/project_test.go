package project_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// The token goes to the endpoint alone, and is shown nowhere.
func TestTheTokenGoesNowhereElse(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked elsewhere: %v", r.Header)
	}))
	defer elsewhere.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("authorization is %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer api.Close()
	o := project.Options{Token: secret.New(token), Endpoint: api.URL + "/v1"}
	_, err := project.New(o).Existing(t.Context())
	if said := fmt.Sprintf("%v %+v %#v", err, o, o); err == nil || strings.Contains(said, token) {
		t.Errorf("said is %s", said)
	}
}

// Everything in a project is listed, on each page; and what was made here, by label and name.
func TestExistingAndLeftovers(t *testing.T) {
	inProject(t, hcloudsim.Options{RateLimit: hcloudsim.Unlimited}, func(t *testing.T, w *world) {
		p := w.project(nil)
		list := func() string {
			all, err := p.Existing(t.Context())
			noError(t, err)
			return fmt.Sprint(all)
		}
		now := list()
		for _, want := range []string{
			"network prod ", "server prod-1 ", "server prod-2 ", "server underlay-measure-x ", "load balancer prod ", "floating IP prod ", "primary IP prod ",
		} {
			if !strings.Contains(now, want) {
				t.Errorf("%q is not among %s", want, now)
			}
		}
		if strings.Contains(now, "SSH") {
			t.Errorf("an SSH key keeps nothing from being measured: %s", now)
		}
		if left, err := p.Leftovers(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
		for i := range 120 {
			w.make("/networks", fmt.Sprintf(`{"name": "underlay-measure-%d", "ip_range": "10.0.0.0/8", "labels": {%q: "an-earlier-run"}}`, i, project.Label))
		}
		if left, err := p.Leftovers(t.Context()); err != nil || len(left) != 120 {
			t.Errorf("left are %d things, %v", len(left), err)
		}
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "GET /floating_ips", Code: "server_error", Times: -1}))
		if all, err := p.Existing(t.Context()); err == nil {
			t.Errorf("half of it is no answer: %v", all)
		}
		w.sim.ClearFaults()
		removed, err := p.Sweep(t.Context())
		noError(t, err)
		if removed != 120 {
			t.Errorf("removed %d", removed)
		}
		w.empty()
	})
}

// The addresses that a server came with go after it.
func TestEmptied(t *testing.T) {
	inProject(t, hcloudsim.Options{RateLimit: hcloudsim.Unlimited}, func(t *testing.T, w *world) {
		p := w.project(nil)
		began := time.Now()
		if err := p.Emptied(t.Context()); err == nil || !strings.Contains(err.Error(), "server prod-1 ") || time.Since(began) < time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		all, err := p.Existing(t.Context())
		noError(t, err)
		time.AfterFunc(20*time.Second, func() {
			for range 2 { // what is in use is removed after what uses it
				for _, thing := range all {
					w.direct("DELETE", fmt.Sprintf("/%s/%d", thing.Kind, thing.ID), "")
				}
				w.settle()
			}
		})
		began = time.Now()
		if err := p.Emptied(t.Context()); err != nil || time.Since(began) < 20*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		time.Sleep(5 * time.Minute)
	})
}

func TestCheckToken(t *testing.T) {
	for name, row := range map[string]struct {
		fault hcloudsim.Fault
		says  string
	}{
		"good":         {},
		"wrong":        {hcloudsim.Fault{Code: "unauthorized"}, "refuses the token"},
		"another path": {hcloudsim.Fault{Code: "not_found"}, "as in https://api.hetzner.cloud/v1"},
		"unreachable":  {hcloudsim.Fault{DropBeforeApply: true}, "asking the API"},
		"reads only":   {hcloudsim.Fault{Match: "POST /ssh_keys", Status: 401, Code: "token_readonly"}, "may only read"},
		"forbidden":    {hcloudsim.Fault{Match: "POST /ssh_keys", Code: "forbidden"}, "may only read"},
	} {
		inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
			if row.says != "" {
				noError(t, w.sim.Inject(row.fault))
			}
			p := w.project(nil)
			err := p.CheckToken(t.Context())
			if err == nil {
				_, err = p.Key(t.Context())
			}
			if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
