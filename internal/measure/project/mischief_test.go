package project_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// Whatever is asked for, of everything that the API can do, nothing of others changes, nothing
// without a label comes to be, and a sweep removes the rest.
func TestMischief(t *testing.T) {
	rounds := 25
	if testing.Short() || slowdown > 1 {
		rounds = 10
	}
	sent := map[string]int{}
	for seed := range rounds {
		inProject(t, hcloudsim.Options{RateLimit: hcloudsim.Unlimited, ActionTime: time.Second}, func(t *testing.T, w *world) {
			p := w.project(nil)
			_, err := furnish(t.Context(), p)
			noError(t, err)
			m := &mischief{world: w, rand: rand.New(rand.NewPCG(uint64(seed), 1)), p: p}
			for range 400 {
				if op, done := m.ask(); done {
					sent[op]++
				}
				time.Sleep(time.Duration(m.rand.IntN(2)) * time.Second)
			}
			w.settle()
			w.untouched()
			if _, err := p.Sweep(t.Context()); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.empty()
		})
	}
	// The test would show little if most of what it asked for were refused anyway.
	for _, op := range []string{
		"DELETE /servers/{id}", "POST /networks", "POST /servers/{id}/actions/attach_to_network",
		"POST /load_balancers/{id}/actions/add_target", "POST /floating_ips/{id}/actions/assign", "PUT /networks/{id}",
	} {
		if sent[op] == 0 {
			t.Errorf("%s was never carried out", op)
		}
	}
}

// mischief asks for anything.
type mischief struct {
	*world
	rand *rand.Rand
	p    *project.Project
}

// ask sends one request by chance, and reports whether it has been carried out.
func (m *mischief) ask() (what string, done bool) {
	operations := hcloudsim.Operations()
	op := operations[m.rand.IntN(len(operations))]
	operation, path := op.Method+" "+op.Path, op.Path
	for _, hole := range []string{"{id}", "{action_id}"} {
		path = strings.Replace(path, hole, fmt.Sprint(m.id(strings.Split(path, "/")[1])), 1)
	}
	body := ""
	if op.Method != http.MethodGet && (op.Method != http.MethodDelete || m.rand.IntN(10) == 0) {
		text, err := json.Marshal(m.body(operation))
		noError(m.t, err)
		body = string(text)
	}
	_, err := try(m.p, op.Method, endpoint+path, body)
	return operation, err == nil
}

// id is that of something of a kind, or, at times, of any: half of them the run's.
func (m *mischief) id(kind string) int64 {
	ids := map[string][]int64{} // by kind, and by "our "+kind
	add := func(of string, id int64, labels map[string]string) {
		for _, k := range []string{of, "any"} {
			ids[k] = append(ids[k], id)
			if labels[project.Label] == run {
				ids["our "+k] = append(ids["our "+k], id)
			}
		}
	}
	for _, s := range m.sim.Servers() {
		add("servers", s.ID, s.Labels)
	}
	for _, n := range m.sim.Networks() {
		add("networks", n.ID, n.Labels)
	}
	for _, lb := range m.sim.LoadBalancers() {
		add("load_balancers", lb.ID, lb.Labels)
	}
	for _, f := range m.sim.FloatingIPs() {
		add("floating_ips", f.ID, f.Labels)
	}
	for _, k := range m.sim.PrimaryIPs() {
		add("primary_ips", k.ID, k.Labels)
	}
	if len(ids[kind]) == 0 || m.rand.IntN(8) == 0 {
		kind = "any"
	}
	of := ids[kind]
	if ours := ids["our "+kind]; len(ours) > 0 && m.rand.IntN(4) != 0 {
		of = ours
	}
	return of[m.rand.IntN(len(of))]
}

// fitting are fields with which the API may carry out an operation.
func fitting(operation string) []string {
	return map[string][]string{
		"POST /servers":                                         {"name", "labels", "server_type", "image", "location", "networks"},
		"POST /networks":                                        {"name", "labels", "ip_range"},
		"POST /load_balancers":                                  {"name", "labels", "load_balancer_type", "location", "network", "targets"},
		"POST /floating_ips":                                    {"name", "labels", "type", "server"},
		"POST /primary_ips":                                     {"name", "labels", "type", "location"},
		"PUT /servers/{id}":                                     {"name", "labels"},
		"PUT /networks/{id}":                                    {"labels", "expose_routes_to_vswitch"},
		"PUT /primary_ips/{id}":                                 {"labels", "auto_delete"},
		"POST /servers/{id}/actions/attach_to_network":          {"network"},
		"POST /servers/{id}/actions/detach_from_network":        {"network"},
		"POST /servers/{id}/actions/change_protection":          {"delete", "rebuild"},
		"POST /networks/{id}/actions/add_route":                 {"destination", "gateway"},
		"POST /networks/{id}/actions/delete_route":              {"destination", "gateway"},
		"POST /networks/{id}/actions/add_subnet":                {"type", "ip_range", "network_zone"},
		"POST /networks/{id}/actions/change_protection":         {"delete"},
		"POST /load_balancers/{id}/actions/add_target":          {"type", "server"},
		"POST /load_balancers/{id}/actions/remove_target":       {"type", "server"},
		"POST /load_balancers/{id}/actions/attach_to_network":   {"network"},
		"POST /load_balancers/{id}/actions/detach_from_network": {"network"},
		"POST /load_balancers/{id}/actions/change_type":         {"load_balancer_type"},
		"POST /floating_ips/{id}/actions/assign":                {"server"},
		"POST /primary_ips/{id}/actions/assign":                 {"assignee_type", "assignee_id"},
	}[operation]
}

// vocabulary are fields that operations know, with values of which some are right.
func (m *mischief) vocabulary(operation string) map[string]func() any {
	return map[string]func() any{
		"name":        func() any { return m.of(m.p.Name(fmt.Sprint("m", m.rand.IntN(5))), "prod-9", "") },
		"labels":      func() any { return m.of(m.p.Labels(), m.p.Labels(), map[string]string{}, nil) },
		"server_type": func() any { return m.of("cx23", "cx23", "ccx63", 114) },
		"image":       func() any { return "debian-12" }, "location": func() any { return m.of("nbg1", "nbg1", "ash") },
		"load_balancer_type": func() any { return m.of("lb11", "lb31") },
		"ip_range":           func() any { return m.of("10.0.0.0/8", "10.3.0.0/24", "172.20.0.0/16", "192.168.0.0/16") },
		"subnets":            func() any { return []any{map[string]any{"type": "cloud", "network_zone": "eu-central"}} },
		"network":            func() any { return m.id("networks") }, "networks": func() any { return []any{m.id("networks")} },
		"server": func() any {
			if strings.Contains(operation, "/load_balancers") {
				return map[string]any{"id": m.id("servers")}
			}
			return m.id("servers")
		},
		"targets": func() any {
			return []any{map[string]any{"type": "server", "server": map[string]any{"id": m.id("servers")}}}
		},
		"type": func() any {
			if strings.Contains(operation, "/load_balancers") && m.rand.IntN(4) > 0 {
				return "server"
			}
			return m.of("server", "server", "ipv4", "ipv6", "ipv6", "cloud", "cloud", "ip", "label_selector")
		},
		"assignee_type": func() any { return "server" }, "assignee_id": func() any { return m.id("servers") },
		"destination": func() any { return "10.200.0.0/24" }, "gateway": func() any { return m.of("10.0.0.2", "10.0.0.3") },
		"network_zone": func() any { return "eu-central" }, "delete": func() any { return true }, "rebuild": func() any { return true },
		"public_net":     func() any { return map[string]any{"ipv4": m.id("primary_ips")} },
		"label_selector": func() any { return map[string]any{"selector": "env=prod"} },
		"ip":             func() any { return m.of("10.0.0.9", map[string]any{"ip": "198.51.100.7"}) }, "alias_ips": func() any { return []any{} },
		"auto_delete": func() any { return false }, "expose_routes_to_vswitch": func() any { return m.of(true, false) },
	}
}

// body has fields that fit an operation, and others by chance.
func (m *mischief) body(operation string) map[string]any {
	all := m.vocabulary(operation)
	template := fitting(operation)
	if m.rand.IntN(4) == 0 {
		template = nil
	}
	body := map[string]any{}
	for _, name := range template {
		body[name] = all[name]()
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if m.rand.IntN(80) == 0 {
			body[name] = all[name]()
		}
	}
	return body
}

func (m *mischief) of(values ...any) any { return values[m.rand.IntN(len(values))] }

// What the API answers doesn't make others' things the run's.
func TestRepliesThatLie(t *testing.T) {
	name, label := "underlay-measure-"+run+"-x", fmt.Sprintf(`{%q: %q}`, project.Label, run)
	for what, body := range map[string]string{
		"another's server":      `{"server": {"id": 7, "name": "prod-1", "labels": {}}, "servers": [{"id": 7, "name": "prod-1", "labels": {"env": "prod"}}]}`,
		"no labels":             `{"server": {"id": 7, "name": "` + name + `"}, "servers": [{"id": 7, "name": "` + name + `", "labels": null}]}`,
		"label alone":           `{"server": {"id": 7, "name": "prod-1", "labels": ` + label + `}, "servers": [{"id": 7, "name": "prod-1", "labels": ` + label + `}]}`,
		"another run":           `{"servers": [{"id": 7, "name": "underlay-measure-` + otherRun + `-x", "labels": {"underlay.dev/measure": "` + otherRun + `"}}]}`,
		"another kind":          `{"networks": [{"id": 7, "name": "` + name + `", "labels": ` + label + `}], "network": {"id": 7, "name": "` + name + `", "labels": ` + label + `}}`,
		"inside something else": `{"server": {"id": 8, "name": "prod", "labels": {}, "server": {"id": 7, "name": "` + name + `", "labels": ` + label + `}}}`,
		"nonsense":              `{"servers": {"id": 7}, "server": [7]}`,
	} {
		var changed []string
		p, err := project.New(project.Options{
			Token: secret.New(token), Endpoint: endpoint, Run: run, Plan: plan(),
			Transport: way(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodDelete || strings.Contains(r.URL.Path, "/actions/") {
					changed = append(changed, r.Method+" "+r.URL.Path)
				}
				return replying(http.StatusOK, body).RoundTrip(r)
			}),
		})
		noError(t, err)
		c := p.Client()
		for _, path := range []string{"/servers", "/servers/7", "/servers?label_selector=underlay.dev/measure", "/servers/7/actions"} {
			_, _ = try(p, "GET", endpoint+path, "")
		}
		_, _, _ = c.Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: p.Name("x"), Labels: p.Labels(), ServerType: &hcloud.ServerType{Name: "cx23"},
			Image: &hcloud.Image{Name: "debian-12"}, Location: &hcloud.Location{Name: "nbg1"},
		})
		_, _, err = c.Server.DeleteWithResult(t.Context(), &hcloud.Server{ID: 7})
		if !errors.Is(err, project.ErrRefused) || len(changed) > 0 {
			t.Errorf("%s: %v, sent %q", what, err, changed)
		}
	}
}
