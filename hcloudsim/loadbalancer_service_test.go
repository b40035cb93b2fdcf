package hcloudsim_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func TestServiceRules(t *testing.T) {
	const check = `"health_check": {"protocol": "tcp", "port": 1, "interval": 15, "timeout": 10, "retries": 3}`
	tests := []struct {
		body        string
		status      int
		code, field string
	}{
		{`{"protocol": "tcp", "listen_port": 443, "destination_port": 30443, "proxyprotocol": true, ` + check + `}`, 201, "", ""},
		{`{"protocol": "tcp", "listen_port": 443, "destination_port": 30443}`, 201, "", ""},
		{`{"protocol": "tcp", "listen_port": 443, "destination_port": 30443, "http": {}, "health_check": {"protocol": "tcp", "http": {}}}`, 201, "", ""},
		{`{"protocol": "http", "listen_port": 8080, "destination_port": 80, "http": {"sticky_sessions": true}}`, 201, "", ""},
		{`{"protocol": "https"}`, 201, "", ""},
		{`{"protocol": "tcp", "listen_port": 80, "destination_port": 1}`, 412, "source_port_already_used", ""},
		{`{"protocol": "https", "http": {"redirect_http": true}}`, 412, "source_port_already_used", ""},
		{`{"protocol": "udp", "listen_port": 53, "destination_port": 53}`, 422, "invalid_input", "protocol"},
		{`{"listen_port": 53, "destination_port": 53}`, 422, "invalid_input", "protocol"},
		{`{"protocol": "tcp", "destination_port": 53}`, 422, "invalid_input", "listen_port"},
		{`{"protocol": "tcp", "listen_port": 65536, "destination_port": 53}`, 422, "invalid_input", "listen_port"},
		{`{"protocol": "tcp", "listen_port": 53}`, 422, "invalid_input", "destination_port"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "health_check": {"interval": 2}}`, 422, "invalid_input", "health_check.interval"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "health_check": {"timeout": 61}}`, 422, "invalid_input", "health_check.timeout"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "health_check": {"retries": 6}}`, 422, "invalid_input", "health_check.retries"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "health_check": {"port": 0}}`, 422, "invalid_input", "health_check.port"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "health_check": {"protocol": "udp"}}`, 422, "invalid_input", "health_check.protocol"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "health_check": {"protocol": "http", "http": {"path": ""}}}`, 422, "invalid_input", "health_check.http.path"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "health_check": {"protocol": "http", "http": {"status_codes": ["2??", "ok"]}}}`, 422, "invalid_input", "health_check.http.status_codes"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "health_check": {"http": {"path": "/"}}}`, 422, "invalid_input", "health_check.http"},
		{`{"protocol": "tcp", "listen_port": 5, "destination_port": 5, "http": {"sticky_sessions": true}}`, 422, "invalid_input", "http"},
		{`{"protocol": "http", "listen_port": 5, "http": {"timeout_idle": 29}}`, 422, "invalid_input", "http.timeout_idle"},
		{`{"protocol": "http", "listen_port": 5, "http": {"cookie_lifetime": 86401}}`, 422, "invalid_input", "http.cookie_lifetime"},
		{`{"protocol": "http", "listen_port": 5, "http": {"redirect_http": true}}`, 422, "invalid_input", "http.redirect_http"},
		{`{"protocol": "https", "http": {"certificates": [7]}}`, 404, "not_found", ""},
	}
	for _, test := range tests {
		t.Run(test.body, func(t *testing.T) {
			sim := newSim(hcloudsim.Options{})
			lb := createWhole(t, client(sim), nil).LoadBalancer // listens on 80
			got := send(t, sim, "POST", fmt.Sprintf("/v1/load_balancers/%d/actions/add_service", lb.ID), test.body)
			got.want(t, test.status, test.code)
			if got.field() != test.field {
				t.Errorf("answer is about %q, want %q", got.field(), test.field)
			}
		})
	}
}

func TestUpdateAndDeleteService(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	lb := createWhole(t, c, nil).LoadBalancer
	update := func(port int, opts hcloud.LoadBalancerUpdateServiceOpts) error {
		_, _, err := c.LoadBalancer.UpdateService(t.Context(), lb, port, opts)
		return err
	}
	noError(t, update(80, hcloud.LoadBalancerUpdateServiceOpts{
		DestinationPort: hcloud.Ptr(30081),
		HealthCheck:     &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{Retries: hcloud.Ptr(5)},
	}))
	now, _ := sim.LoadBalancer(lb.ID)
	if s := now.Services[0]; s.DestinationPort != 30081 || s.HealthCheck.Retries != 5 || s.HealthCheck.Port != 10256 || s.HealthCheck.HTTP.Path != "/healthz" {
		t.Errorf("service is %+v, its check %+v: want only what was asked for changed", s, s.HealthCheck)
	}
	wantCode(t, update(81, hcloud.LoadBalancerUpdateServiceOpts{}), "not_found")

	_, _, err := c.LoadBalancer.AddService(t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolHTTPS, HTTP: &hcloud.LoadBalancerAddServiceOptsHTTP{},
	})
	noError(t, err)
	got := send(t, sim, "POST", fmt.Sprintf("/v1/load_balancers/%d/actions/update_service", lb.ID), `{"listen_port": 443, "http": {"redirect_http": true}}`)
	got.want(t, http.StatusUnprocessableEntity, "source_port_already_used")

	_, _, err = c.LoadBalancer.DeleteService(t.Context(), lb, 80)
	noError(t, err)
	_, _, err = c.LoadBalancer.DeleteService(t.Context(), lb, 80)
	wantCode(t, err, "not_found")
	if now, _ := sim.LoadBalancer(lb.ID); len(now.Services) != 1 || now.Services[0].ListenPort != 443 {
		t.Errorf("services are %+v", now.Services)
	}
}
