package hcloudsim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// createWhole creates a load balancer as a controller does: everything in one request.
func createWhole(
	t *testing.T, c *hcloud.Client, n *hcloud.Network, servers ...*hcloud.Server,
) hcloud.LoadBalancerCreateResult {
	t.Helper()
	opts := hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Labels: map[string]string{"owner": "test"}, Network: n,
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(80),
			DestinationPort: hcloud.Ptr(30080),
			HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
				Protocol: hcloud.LoadBalancerServiceProtocolHTTP, Port: hcloud.Ptr(10256),
				Interval: hcloud.Ptr(3 * time.Second), Timeout: hcloud.Ptr(2 * time.Second),
				Retries: hcloud.Ptr(2),
				HTTP:    &hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP{Path: hcloud.Ptr("/healthz")},
			},
		}},
	}
	for _, s := range servers {
		opts.Targets = append(opts.Targets, hcloud.LoadBalancerCreateOptsTarget{
			Type:   hcloud.LoadBalancerTargetTypeServer,
			Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: s}, UsePrivateIP: hcloud.Ptr(n != nil),
		})
	}
	made, _, err := c.LoadBalancer.Create(t.Context(), opts)
	noError(t, err)
	return made
}

func TestLoadBalancerLife(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		made := createWhole(t, w.c, w.net, w.a)
		if len(w.sim.Requests()) != 1 || made.Action == nil || made.Action.Command != "create_load_balancer" {
			t.Fatalf("created by %v with %+v, want one request and one action", w.sim.Requests(), made.Action)
		}
		if len(made.LoadBalancer.PrivateNet) != 0 {
			t.Error("the attachment shows before its action has ended")
		}
		noError(t, w.c.Action.WaitFor(t.Context(), made.Action))

		lb, _, err := w.c.LoadBalancer.GetByName(t.Context(), "web")
		noError(t, err)
		check := lb.Services[0].HealthCheck
		switch {
		case lb.PrivateNet[0].IP.String() != "10.0.0.3", lb.Labels["owner"] != "test", lb.Location.Name != "fsn1", !lb.PublicNet.Enabled:
			t.Errorf("load balancer is %+v", lb)
		case check.Port != 10256 || check.HTTP.Path != "/healthz" || check.Interval != 3*time.Second || len(check.HTTP.StatusCodes) != 2:
			t.Errorf("health check is %+v", check)
		case lb.Targets[0].Server.Server.ID != w.a.ID || !lb.Targets[0].UsePrivateIP || lb.Targets[0].HealthStatus[0].Status != "healthy":
			t.Errorf("target is %+v", lb.Targets[0])
		}
		if a, _ := w.sim.Server(w.a.ID); len(a.LoadBalancers) != 1 || a.LoadBalancers[0] != lb.ID {
			t.Errorf("server has the load balancers %v", a.LoadBalancers)
		}
		if n, _ := w.sim.Network(w.net.ID); len(n.LoadBalancers) != 1 {
			t.Errorf("network has the load balancers %v", n.LoadBalancers)
		}

		gone, _, err := w.c.LoadBalancer.DeleteWithResult(t.Context(), lb)
		noError(t, err)
		_, _, err = w.c.LoadBalancer.Update(t.Context(), lb, hcloud.LoadBalancerUpdateOpts{Name: "late"})
		wantCode(t, err, "conflict")
		noError(t, w.c.Action.WaitFor(t.Context(), gone.Action))
		if left := w.sim.LoadBalancers(); len(left) != 0 {
			t.Errorf("left are %+v", left)
		}
	})
}

func TestLoadBalancerRules(t *testing.T) {
	const where = `"load_balancer_type": "lb11", "location": "fsn1"`
	service := func(port int) string {
		return fmt.Sprintf(`{"protocol": "tcp", "listen_port": %d, "destination_port": %d}`, port, port)
	}
	six := strings.Join([]string{service(1), service(2), service(3), service(4), service(5), service(6)}, ",")
	tests := []struct {
		body   string
		status int
		code   string
	}{
		{`{"name": "a", ` + where + `}`, 201, ""},
		{`{"name": "a", "load_balancer_type": 3, "network_zone": "us-east"}`, 201, ""},
		{`{"name": "web", ` + where + `}`, 409, "uniqueness_error"},
		{`{"name": " a", ` + where + `}`, 422, "invalid_input"},
		{`{"name": "", ` + where + `}`, 422, "invalid_input"},
		{`{"name": "a", "load_balancer_type": "lb99", "location": "fsn1"}`, 422, "invalid_input"},
		{`{"name": "a", "load_balancer_type": "lb11"}`, 422, "invalid_input"},
		{`{"name": "a", "network_zone": "eu-central", ` + where + `}`, 422, "invalid_input"},
		{`{"name": "a", "load_balancer_type": "lb11", "network_zone": "moon"}`, 422, "invalid_input"},
		{`{"name": "a", "algorithm": {"type": "dice"}, ` + where + `}`, 422, "invalid_input"},
		{`{"name": "a", "network": 7, ` + where + `}`, 404, "not_found"},
		{`{"name": "a", "public_net": {"ipv4": 7}, ` + where + `}`, 404, "not_found"},
		{`{"name": "a", "public_interface": false, ` + where + `}`, 422, "load_balancer_not_attached_to_network"},
		{`{"name": "a", "services": [` + service(1) + `,` + service(1) + `], ` + where + `}`, 412, "source_port_already_used"},
		{`{"name": "a", "services": [` + six + `], ` + where + `}`, 403, "resource_limit_exceeded"},
		{`{"name": "a", "targets": [{"type": "server", "server": {"id": 7}}], ` + where + `}`, 404, "not_found"},
	}
	for _, test := range tests {
		t.Run(test.body, func(t *testing.T) {
			sim := newSim(hcloudsim.Options{})
			createWhole(t, client(sim), nil)
			send(t, sim, "POST", "/v1/load_balancers", test.body).want(t, test.status, test.code)
			if left := len(sim.LoadBalancers()); test.status != 201 && left != 1 {
				t.Errorf("a refused request left %d load balancers behind, want 1", left)
			}
		})
	}
}

func TestTypeLimits(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	lb := createWhole(t, c, nil).LoadBalancer
	for i := range 26 {
		s := seedServer(t, sim, hcloudsim.ServerSeed{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{"all": ""}})
		_, _, err := c.LoadBalancer.AddServerTarget(t.Context(), lb,
			hcloud.LoadBalancerAddServerTargetOpts{Server: s})
		if i < 25 {
			noError(t, err)
		} else {
			wantCode(t, err, "resource_limit_exceeded")
		}
	}
	bigger := func(name string) error {
		_, _, err := c.LoadBalancer.ChangeType(t.Context(), lb, hcloud.LoadBalancerChangeTypeOpts{
			LoadBalancerType: &hcloud.LoadBalancerType{Name: name},
		})
		return err
	}
	noError(t, bigger("lb21"))
	_, _, err := c.LoadBalancer.AddLabelSelectorTarget(t.Context(), lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "all"})
	noError(t, err) // 25 + 26
	wantCode(t, bigger("lb11"), "invalid_load_balancer_type")
	wantCode(t, bigger("lb99"), "invalid_input")
}

func TestLoadBalancerSettings(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	lb := createWhole(t, c, nil).LoadBalancer
	lb, _, err := c.LoadBalancer.Update(t.Context(), lb, hcloud.LoadBalancerUpdateOpts{Name: "renamed", Labels: map[string]string{}})
	noError(t, err)
	_, _, err = c.LoadBalancer.ChangeAlgorithm(t.Context(), lb, hcloud.LoadBalancerChangeAlgorithmOpts{
		Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections,
	})
	noError(t, err)
	_, _, err = c.LoadBalancer.ChangeDNSPtr(t.Context(), lb, lb.PublicNet.IPv4.IP.String(), hcloud.Ptr("web.example.com"))
	noError(t, err)
	_, _, err = c.LoadBalancer.ChangeDNSPtr(t.Context(), lb, "203.0.113.1", nil)
	wantCode(t, err, "invalid_input")
	_, _, err = c.LoadBalancer.ChangeProtection(t.Context(), lb,
		hcloud.LoadBalancerChangeProtectionOpts{Delete: hcloud.Ptr(true)})
	noError(t, err)
	_, _, err = c.LoadBalancer.DeleteWithResult(t.Context(), lb)
	wantCode(t, err, "protected")

	now, _, err := c.LoadBalancer.GetByID(t.Context(), lb.ID)
	noError(t, err)
	if now.Name != "renamed" || len(now.Labels) != 0 || now.Algorithm.Type != "least_connections" || now.PublicNet.IPv4.DNSPtr != "web.example.com" {
		t.Errorf("load balancer is %+v", now)
	}
	_, _, err = c.LoadBalancer.ChangeDNSPtr(t.Context(), lb, lb.PublicNet.IPv4.IP.String(), nil)
	noError(t, err)
	if now, _ := sim.LoadBalancer(lb.ID); !strings.HasPrefix(now.PublicNet.IPv4.DNSPtr, "static.") {
		t.Errorf("reverse DNS is %s after it was reset", now.PublicNet.IPv4.DNSPtr)
	}
}
