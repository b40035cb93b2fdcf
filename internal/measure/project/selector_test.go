package project_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// A selector that selects whatever bears the run's label alone is named before a server is made.
func TestSelectorsThatSelectTheRunsServers(t *testing.T) {
	for selector, selects := range map[string]bool{
		"env=prod":                             false,
		"env==prod":                            false,
		"env":                                  false,
		"env in (prod, stage)":                 false,
		"!env":                                 true,
		"env!=prod":                            true,
		"env notin (prod,stage)":               true,
		"env!=prod,role=web":                   false,
		"env!=prod , !role":                    true,
		"env notin (prod,stage),role in (a,b)": false,
		"env!=prod,!underlay.dev/measure":      false,
		"underlay.dev/measure":                 true,
		"underlay.dev/measure=" + run:          true,
		"underlay.dev/measure!=" + run:         false,
		"underlay.dev/measure in (" + run + ", x)": true,
		"underlay.dev/measure notin (" + run + ")": false,
		"env what (prod)":                          true, // not understood
		"":                                         true,
	} {
		for _, reply := range []string{
			`{"load_balancers": [{"name": "web", "targets": [{"type": "server", "server": {"id": 1}}, {"type": "label_selector", "label_selector": {"selector": %q}}]}]}`,
			`{"firewalls": [{"name": "web", "applied_to": [{"type": "server"}, {"type": "label_selector", "label_selector": {"selector": %q}}]}]}`,
		} {
			p, err := project.New(project.Options{
				Token: secret.New(token), Endpoint: endpoint, Run: run, Plan: plan(),
				Transport: way(func(r *http.Request) (*http.Response, error) {
					if !strings.Contains(reply, strings.TrimPrefix(r.URL.Path, "/v1/")) {
						return replying(404, `{"error": {"code": "not_found", "message": "no such thing"}}`).RoundTrip(r)
					}
					return replying(200, fmt.Sprintf(reply, selector)).RoundTrip(r)
				}),
			})
			noError(t, err)
			err = p.CheckSelectors(t.Context())
			if (err != nil) != selects || err != nil && !strings.Contains(err.Error(), `"web"`) {
				t.Errorf("%q selects: %v", selector, err)
			}
		}
	}
}

func TestSelectorsOfAProject(t *testing.T) {
	inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
		p := w.project(nil)
		noError(t, p.CheckSelectors(t.Context()))
		w.direct("POST", fmt.Sprintf("/load_balancers/%d/actions/add_target", w.balancer), `{"type": "label_selector", "label_selector": {"selector": "env!=test"}}`)
		err := p.CheckSelectors(t.Context())
		if err == nil || !strings.Contains(err.Error(), `load balancer "prod"`) || !strings.Contains(err.Error(), ",!underlay.dev/measure") {
			t.Errorf("%v", err)
		}
		noError(t, w.sim.Inject(hcloudsim.Fault{Code: "server_error"}))
		if err := p.CheckSelectors(t.Context()); err == nil || strings.Contains(err.Error(), "prod") {
			t.Errorf("%v", err)
		}
		// Without servers nothing can be selected.
		none, err := project.New(project.Options{Token: secret.New(token), Endpoint: endpoint, Transport: w.sim.Transport(), Run: run})
		noError(t, err)
		noError(t, none.CheckSelectors(t.Context()))
	})
}

// A server with a volume of somebody's stays.
func TestVolumesStay(t *testing.T) {
	body := fmt.Sprintf(`{"servers": [{"id": 7, "name": "underlay-measure-%[1]s-x", "labels": {%[2]q: %[1]q}, "volumes": [3]}]}`, run, project.Label)
	var sent []string
	p, err := project.New(project.Options{
		Token: secret.New(token), Endpoint: endpoint, Run: run,
		Transport: way(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				sent = append(sent, r.URL.Path)
			}
			return replying(200, body).RoundTrip(r)
		}),
	})
	noError(t, err)
	_, err = try(p, "GET", endpoint+"/servers", "")
	noError(t, err)
	if _, err := try(p, "DELETE", endpoint+"/servers/7", ""); err == nil || !strings.Contains(err.Error(), "volume") || len(sent) > 0 {
		t.Errorf("%v; sent %q", err, sent)
	}
}
