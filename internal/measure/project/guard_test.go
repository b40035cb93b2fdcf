package project_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

func ipNet(text string) *net.IPNet {
	_, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return n
}

// try sends a request through the guard, as it is.
func try(p *project.Project, method, url, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return roundTrip(p, r)
}

// roundTrip hands a request to the client's transport, without what hcloud-go checks itself.
func roundTrip(p *project.Project, r *http.Request) (*http.Response, error) {
	resp, err := p.Client().Do(r, io.Discard)
	if resp == nil {
		return nil, err
	}
	return resp.Response, err
}

// asked is a row of the guard's table. NET, SERVER and so on stand for IDs of others, and net,
// server and so on for IDs of the run's; LABELS are right, NAME is.
type asked struct{ method, path, body string }

// allowed are requests that are sent.
func allowed() []asked {
	return []asked{
		{"GET", "/servers", ""},
		{"GET", "/servers/SERVER", ""},
		{"GET", "/networks/NET/actions", ""},
		{"GET", "/pricing", ""},
		{"GET", "/actions?id=1", ""},
		{"POST", "/servers", `{"name": NAME, "labels": LABELS, "server_type": "cx23", "image": "debian-12", "location": "nbg1", "networks": [net], "ssh_keys": [key], "public_net": {"enable_ipv4": true, "enable_ipv6": false}}`},
		{"POST", "/networks", `{"name": NAME, "labels": LABELS, "ip_range": "10.0.0.0/8", "subnets": [{"type": "vswitch", "vswitch_id": 4321, "ip_range": "10.1.0.0/24", "network_zone": "eu-central"}]}`},
		{"POST", "/load_balancers", `{"name": NAME, "labels": LABELS, "load_balancer_type": "lb11", "network_zone": "eu-central", "network": null, "targets": [{"type": "server", "server": {"id": server}}], "services": [{"protocol": "tcp", "listen_port": 1, "destination_port": 2, "proxyprotocol": true, "http": {"certificates": []}}]}`},
		{"POST", "/floating_ips", `{"name": NAME, "labels": LABELS, "type": "ipv6", "server": server}`},
		{"POST", "/primary_ips", `{"name": NAME, "labels": LABELS, "type": "ipv4", "assignee_type": "server", "location": "fsn1", "auto_delete": true}`},
		{"POST", "/networks/net/actions/add_route", `{"destination": "10.99.0.0/24", "gateway": "10.0.0.2"}`},
		{"POST", "/networks/net/actions/add_subnet", `{"type": "vswitch", "vswitch_id": 4321, "ip_range": "10.7.0.0/24", "network_zone": "eu-central"}`},
		{"POST", "/servers/server/actions/poweroff", ``},
		{"POST", "/servers/server/actions/attach_to_network", `{"network": net}`},
		{"POST", "/load_balancers/balancer/actions/add_target", `{"type": "server", "server": {"id": server, "ip": "2001:db8::1"}}`},
		{"POST", "/load_balancers/balancer/actions/add_target", `{"type": "ip", "ip": {"ip": "10.1.0.7"}}`},
		{"POST", "/load_balancers/balancer/actions/add_target", `{"type": "ip", "ip": {"ip": "198.51.100.7"}}`},
		{"POST", "/floating_ips/floating/actions/assign", `{"server": server}`},
		{"PUT", "/networks/net", `{"labels": LABELS, "expose_routes_to_vswitch": true}`},
		{"DELETE", "/load_balancers/balancer", ""},
	}
}

// forbidden are requests that are never sent.
func forbidden() []asked {
	const start = `"name": NAME, "labels": LABELS`
	aServer := start + `, "server_type": "cx23", "image": "debian-12", "location": "nbg1"`
	aBalancer := start + `, "load_balancer_type": "lb11", "location": "nbg1"`
	return append(forbiddenChanges(), []asked{
		// Without the label, or the name, or with a wrong one.
		{"POST", "/networks", `{"name": NAME, "ip_range": "10.0.0.0/8"}`},
		{"POST", "/networks", `{"name": NAME, "ip_range": "10.0.0.0/8", "labels": {}}`},
		{"POST", "/networks", `{"name": NAME, "ip_range": "10.0.0.0/8", "labels": null}`},
		{"POST", "/networks", `{"name": NAME, "ip_range": "10.0.0.0/8", "labels": {"underlay.dev/measure": "20261120-0900-cc22dd"}}`},
		{"POST", "/networks", `{"name": NAME, "ip_range": "10.0.0.0/8", "Labels": LABELS}`},
		{"POST", "/networks", `{"name": NAME, "ip_range": "10.0.0.0/8", "labels": LABELS, "labels": {}}`},
		{"POST", "/networks", `{"name": "net", "ip_range": "10.0.0.0/8", "labels": LABELS}`},
		{"POST", "/networks", `{"ip_range": "10.0.0.0/8", "labels": LABELS}`},
		{"POST", "/networks", ``},
		{"POST", "/networks", `[` + `{` + start + `}]`},
		{"POST", "/networks", `{` + start + `} {}`},
		{"POST", "/servers", `{` + start + `, "image": "debian-12"}`},
		// What costs otherwise than planned.
		{"POST", "/servers", `{` + start + `, "server_type": "ccx63", "image": "debian-12", "location": "nbg1"}`},
		{"POST", "/servers", `{` + start + `, "server_type": 101, "image": "debian-12", "location": "nbg1"}`},
		{"POST", "/servers", `{` + start + `, "server_type": "cx23", "image": "debian-12", "location": "ash"}`},
		{"POST", "/load_balancers", `{` + start + `, "load_balancer_type": "lb31", "location": "nbg1"}`},
		{"POST", "/floating_ips", `{` + start + `, "type": "ipv4", "home_location": "nbg1"}`},
		// What leads to others' things.
		{"POST", "/servers", `{` + aServer + `, "networks": [NET]}`},
		{"POST", "/servers", `{` + aServer + `, "networks": [net, NET]}`},
		{"POST", "/servers", `{` + aServer + `, "networks": ["NET"]}`},
		{"POST", "/servers", `{` + aServer + `, "networks": [net.0]}`},
		{"POST", "/servers", `{` + aServer + `, "networks": NET}`},
		{"POST", "/servers", `{` + aServer + `, "ssh_keys": [KEY]}`},
		{"POST", "/servers", `{` + aServer + `, "volumes": [1]}`},
		{"POST", "/servers", `{` + aServer + `, "firewalls": [{"firewall": 1}]}`},
		{"POST", "/servers", `{` + aServer + `, "placement_group": 1}`},
		{"POST", "/servers", `{` + aServer + `, "public_net": {"ipv4": PRIMARY}}`},
		{"POST", "/servers", `{` + aServer + `, "public_net": {"ipv9": 1}}`},
		{"POST", "/servers", `{` + aServer + `, "something_new": SERVER}`},
		{"POST", "/networks", `{` + start + `, "ip_range": "10.0.0.0/8", "subnets": [{"type": "vswitch", "vswitch_id": 77}]}`},
		{"POST", "/load_balancers", `{` + aBalancer + `, "network": NET}`},
		{"POST", "/load_balancers", `{` + aBalancer + `, "public_net": {"ipv4": PRIMARY}}`},
		{"POST", "/load_balancers", `{` + aBalancer + `, "targets": [{"type": "server", "server": {"id": SERVER}}]}`},
		{"POST", "/load_balancers", `{` + aBalancer + `, "targets": [{"type": "ip", "ip": {"ip": "203.0.113.5"}}]}`},
		{"POST", "/load_balancers", `{` + aBalancer + `, "targets": [{"type": "label_selector", "label_selector": {"selector": "env=prod"}}]}`},
		{"POST", "/load_balancers", `{` + aBalancer + `, "services": [{"protocol": "https", "http": {"certificates": [1]}}]}`},
		{"POST", "/floating_ips", `{` + start + `, "type": "ipv6", "server": SERVER}`},
		{"POST", "/primary_ips", `{` + start + `, "type": "ipv6", "assignee_type": "server", "assignee_id": SERVER}`},
		{"POST", "/certificates", `{` + start + `}`},
		{"POST", "/firewalls", `{` + start + `}`},
		{"POST", "/volumes", `{` + start + `}`},
	}...)
}

// forbiddenChanges are changes of what isn't the run's, or not for it to change.
func forbiddenChanges() []asked {
	return []asked{
		{"DELETE", "/servers/SERVER", ""},
		{"DELETE", "/networks/NET", ""},
		{"DELETE", "/load_balancers/BALANCER", ""},
		{"DELETE", "/floating_ips/FLOATING", ""},
		{"DELETE", "/primary_ips/PRIMARY", ""},
		{"DELETE", "/ssh_keys/KEY", ""},
		{"DELETE", "/servers", ""},
		{"DELETE", "/servers/", ""},
		{"DELETE", "/servers/server/", ""},
		{"DELETE", "/servers/0server", ""},
		{"DELETE", "/servers/%73erver", ""},
		{"DELETE", "/servers/server/../SERVER", ""},
		{"DELETE", "/servers/server%2F..%2FSERVER", ""},
		{"DELETE", "/servers/server?id=SERVER", ""},
		{"DELETE", "/servers/server", `{"id": SERVER}`},
		{"DELETE", "/networks/server", ""}, // an ID of the run's, of something else
		{"DELETE", "/images/1", ""},
		{"PUT", "/servers/SERVER", `{"name": NAME, "labels": LABELS}`},
		{"PUT", "/servers/server", `{"labels": {}}`},
		{"PUT", "/servers/server", `{"labels": null}`},
		{"PUT", "/servers/server", `{"name": "prod-9"}`},
		{"POST", "/servers/SERVER/actions/poweroff", ""},
		{"POST", "/servers/SERVER/actions/attach_to_network", `{"network": net}`},
		{"POST", "/servers/server/actions/attach_to_network", `{"network": NET}`},
		{"POST", "/servers/server/actions/detach_from_network", `{"network": NET}`},
		{"POST", "/servers/server/actions/change_protection", `{"delete": true, "rebuild": true}`},
		{"POST", "/servers/server/actions/change_type", `{"server_type": "ccx63"}`},
		{"POST", "/servers/server/actions/create_image", `{}`},
		{"POST", "/servers/server/actions/enable_backup", `{}`},
		{"POST", "/servers/server/actions/rebuild", `{"image": "debian-12"}`},
		{"POST", "/networks/NET/actions/add_route", `{"destination": "10.99.0.0/24", "gateway": "10.0.0.2"}`},
		{"POST", "/networks/NET/actions/delete_subnet", `{"ip_range": "10.0.0.0/16"}`},
		{"POST", "/networks/net/actions/add_subnet", `{"type": "vswitch", "vswitch_id": 77}`},
		{"POST", "/load_balancers/BALANCER/actions/remove_target", `{"type": "server", "server": {"id": SERVER}}`},
		{"POST", "/load_balancers/balancer/actions/add_target", `{"type": "server", "server": {"id": SERVER}}`},
		{"POST", "/load_balancers/balancer/actions/add_target", `{"type": "label_selector", "label_selector": {"selector": "a"}}`},
		{"POST", "/load_balancers/balancer/actions/attach_to_network", `{"network": NET}`},
		{"POST", "/load_balancers/balancer/actions/change_type", `{"load_balancer_type": "lb31"}`},
		{"POST", "/floating_ips/FLOATING/actions/unassign", ""},
		{"POST", "/floating_ips/FLOATING/actions/assign", `{"server": server}`},
		{"POST", "/floating_ips/floating/actions/assign", `{"server": SERVER}`},
		{"POST", "/primary_ips/primary/actions/assign", `{"assignee_type": "server", "assignee_id": SERVER}`},
		{"PATCH", "/servers/server", `{}`},
	}
}

func TestGuard(t *testing.T) {
	inProject(t, hcloudsim.Options{RateLimit: hcloudsim.Unlimited}, func(t *testing.T, w *world) {
		for _, rows := range []struct {
			all  []asked
			sent bool
		}{{allowed(), true}, {forbidden(), false}} {
			for _, row := range rows.all {
				w.guardRow(t, row, rows.sent)
			}
		}
	})
}

// guardRow tries one request in a project that has just been furnished.
func (w *world) guardRow(t *testing.T, row asked, sent bool) {
	t.Helper()
	last := ""
	p := w.project(func(next http.RoundTripper) http.RoundTripper {
		return way(func(r *http.Request) (*http.Response, error) {
			last = r.Method + " " + r.URL.RequestURI()
			return next.RoundTrip(r)
		})
	})
	made, err := furnish(t.Context(), p)
	noError(t, err)
	key, err := p.Key(t.Context())
	noError(t, err)
	fill := strings.NewReplacer(
		"NAME", fmt.Sprintf("%q", p.Name("new")), "LABELS", fmt.Sprintf(`{%q: %q}`, project.Label, run),
		"/servers/server", fmt.Sprintf("/servers/%d", made.servers[0].ID), "%73erver", "%3"+fmt.Sprint(made.servers[0].ID),
		"/0server", fmt.Sprintf("/0%d", made.servers[0].ID), "/networks/server", fmt.Sprintf("/networks/%d", made.servers[0].ID),
		": server}", fmt.Sprintf(": %d}", made.servers[0].ID), ": server,", fmt.Sprintf(": %d,", made.servers[0].ID),
		"[net", fmt.Sprintf("[%d", made.net.ID), ": net}", fmt.Sprintf(": %d}", made.net.ID), "/networks/net", fmt.Sprintf("/networks/%d", made.net.ID),
		"/balancer", fmt.Sprintf("/%d", made.balancer.ID), "/floating/", fmt.Sprintf("/%d/", made.floating.ID),
		"/primary/", fmt.Sprintf("/%d/", made.primary.ID), "[key", fmt.Sprintf("[%d", key.ID),
		"SERVER", fmt.Sprint(w.server), "NET", fmt.Sprint(w.net), "BALANCER", fmt.Sprint(w.balancer),
		"FLOATING", fmt.Sprint(w.floating), "PRIMARY", fmt.Sprint(w.primary), "KEY", fmt.Sprint(w.key),
	)
	path, body := fill.Replace(row.path), fill.Replace(row.body)
	last = ""
	_, err = try(p, row.method, endpoint+path, body)
	if got := last != ""; got != sent || errors.Is(err, project.ErrRefused) == sent {
		t.Errorf("%s %s %s: sent is %v (%s), want %v; error %v", row.method, path, body, got, last, sent, err)
	}
	w.untouched()
	_, err = p.Sweep(t.Context())
	noError(t, err)
	w.empty()
}
