package hcloudsim_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(hcloudsim.Options{HealthyAfter: 10 * time.Second})
		c := client(sim)
		s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
		lb := createWhole(t, c, nil, s).LoadBalancer
		health := func(port int) string {
			now, _ := sim.LoadBalancer(lb.ID)
			for _, h := range now.Targets[0].HealthStatus {
				if h.ListenPort == port {
					return h.Status
				}
			}
			return "none"
		}
		expect := func(port int, want string) {
			t.Helper()
			if got := health(port); got != want {
				t.Errorf("target is %s on port %d, want %s", got, port, want)
			}
		}
		expect(80, "unknown")
		time.Sleep(10 * time.Second)
		expect(80, "healthy")
		_, _, err := c.LoadBalancer.AddService(t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(81),
			DestinationPort: hcloud.Ptr(81),
		})
		noError(t, err)
		expect(80, "healthy")
		expect(81, "unknown") // a new service has its own checks

		id := hcloudsim.TargetID{Server: s.ID}
		noError(t, sim.SetTargetHealth(lb.ID, id, 0, hcloudsim.HealthUnhealthy))
		noError(t, sim.SetTargetHealth(lb.ID, id, 81, hcloudsim.HealthHealthy))
		expect(80, "unhealthy")
		expect(81, "healthy")
		noError(t, sim.SetTargetHealth(lb.ID, id, 0, ""))
		expect(80, "healthy")
		_, _, err = c.Server.Poweroff(t.Context(), s)
		noError(t, err)
		expect(80, "unhealthy")
		if err := sim.SetTargetHealth(lb.ID, id, 0, "sick"); err == nil {
			t.Error("a health that isn't one is accepted")
		}
	})
}

// The API returns why a target is unhealthy, as read by the real client.
func TestWhyATargetIsUnhealthy(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	lb := createWhole(t, c, nil, s).LoadBalancer
	id := hcloudsim.TargetID{Server: s.ID}
	shown := func() string {
		t.Helper()
		now, _, err := c.LoadBalancer.GetByID(t.Context(), lb.ID)
		noError(t, err)
		h, detail, status := now.Targets[0].HealthStatus[0], "none", 0
		if h.Detail != nil {
			detail = string(*h.Detail)
		}
		if h.HTTPStatusCode != nil {
			status = *h.HTTPStatusCode
		}
		return fmt.Sprint(h.Status, " ", detail, " ", status)
	}
	for _, test := range []struct {
		finding hcloudsim.Finding
		want    string
	}{
		{hcloudsim.Finding{}, "healthy none 0"},
		{hcloudsim.Finding{Health: hcloudsim.HealthUnhealthy}, "unhealthy unspecified 0"},
		{hcloudsim.Finding{Health: hcloudsim.HealthUnhealthy, Detail: hcloudsim.DetailNoConnection}, "unhealthy layer4_no_connection 0"},
		{hcloudsim.Finding{Health: hcloudsim.HealthUnhealthy, Detail: hcloudsim.DetailHTTPStatus, HTTPStatus: 503}, "unhealthy unexpected_http_status 503"},
	} {
		noError(t, sim.SetTargetFinding(lb.ID, id, 0, test.finding))
		if got := shown(); got != test.want {
			t.Errorf("%+v is shown as %s, want %s", test.finding, got, test.want)
		}
	}
	for _, wrong := range []hcloudsim.Finding{
		{Detail: hcloudsim.DetailTimeout4},
		{Health: hcloudsim.HealthHealthy, Detail: hcloudsim.DetailTimeout4},
		{Health: hcloudsim.HealthUnhealthy, Detail: "tired"},
		{Health: hcloudsim.HealthUnhealthy, HTTPStatus: 503},
		{Health: hcloudsim.HealthUnhealthy, Detail: hcloudsim.DetailHTTPStatus},
	} {
		if err := sim.SetTargetFinding(lb.ID, id, 0, wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
	noError(t, sim.SetTargetFinding(lb.ID, id, 0, hcloudsim.Finding{}))
	_, _, err := c.Server.Poweroff(t.Context(), s)
	noError(t, err)
	if got := shown(); got != "unhealthy layer4_timeout 0" {
		t.Errorf("a server that is off: %s", got)
	}
}

// New connections go to targets that are shown as healthy and are reachable, per service.
func TestHealthyTargets(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	a := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
	b := seedServer(t, sim, hcloudsim.ServerSeed{Name: "b", Network: n.ID})
	seedServer(t, sim, hcloudsim.ServerSeed{Name: "chosen", Network: n.ID, Labels: map[string]string{"x": ""}})
	seedServer(t, sim, hcloudsim.ServerSeed{Name: "chosen-elsewhere", Labels: map[string]string{"x": ""}})
	lb := createWhole(t, c, n, a, b).LoadBalancer
	_, _, err := c.LoadBalancer.AddLabelSelectorTarget(t.Context(), lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "x", UsePrivateIP: hcloud.Ptr(true)})
	noError(t, err)
	_, _, err = c.LoadBalancer.AddService(t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(81),
		DestinationPort: hcloud.Ptr(81),
	})
	noError(t, err)
	noError(t, sim.SetTargetHealth(lb.ID, hcloudsim.TargetID{Server: b.ID}, 80,
		hcloudsim.HealthUnhealthy))
	for _, test := range []struct {
		lb   int64
		port int
		want string
	}{
		{lb.ID, 80, "10.0.0.2 10.0.0.4"},
		{lb.ID, 81, "10.0.0.2 10.0.0.3 10.0.0.4"},
		{lb.ID, 82, ""},
		{lb.ID + 1000, 80, ""},
	} {
		var got []string
		for _, target := range sim.HealthyTargets(test.lb, test.port) {
			got = append(got, target.Address.String())
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("port %d of load balancer %d has the healthy targets %v, want %s", test.port, test.lb, got, test.want)
		}
	}
}

// Real checks take as many intervals as the service has retries, starting from unknown, and start
// over for a service that has changed.
func TestProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked hcloudsim.Probe
		questions, answer := 0, hcloudsim.HealthHealthy
		sim := newSim(hcloudsim.Options{Prober: func(p hcloudsim.Probe) hcloudsim.Finding {
			asked = p
			questions++
			return hcloudsim.Finding{Health: answer}
		}})
		n := seedNetwork(t, sim)
		s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
		made := createWhole(t, client(sim), n, s).LoadBalancer
		lb, _ := sim.LoadBalancer(made.ID)
		check := lb.Services[0].HealthCheck
		interval := time.Duration(check.Interval) * time.Second
		expect := func(want hcloudsim.Health) {
			t.Helper()
			now, _ := sim.LoadBalancer(made.ID)
			if got := now.Targets[0].HealthStatus[0].Status; got != string(want) {
				t.Errorf("target is %s, want %s", got, want)
			}
		}
		turns := func(from, to hcloudsim.Health) {
			t.Helper()
			for range check.Retries - 1 {
				expect(from)
				time.Sleep(interval)
			}
			expect(to)
		}
		turns(hcloudsim.HealthUnknown, hcloudsim.HealthHealthy)
		if asked.Address != netip.MustParseAddr("10.0.0.2") || asked.Target.Server != s.ID || asked.Service.DestinationPort != 30080 {
			t.Errorf("the prober was asked for %+v", asked)
		}
		before := questions
		expect(hcloudsim.HealthHealthy)
		if questions != before {
			t.Error("looking twice asks the prober twice")
		}
		answer = hcloudsim.HealthUnhealthy
		time.Sleep(interval)
		turns(hcloudsim.HealthHealthy, hcloudsim.HealthUnhealthy)
		_, _, err := client(sim).LoadBalancer.UpdateService(t.Context(), made, lb.Services[0].ListenPort,
			hcloud.LoadBalancerUpdateServiceOpts{Proxyprotocol: hcloud.Ptr(true)})
		noError(t, err)
		expect(hcloudsim.HealthUnknown)
		answer = "" // no result: then time decides
		time.Sleep(interval)
		expect(hcloudsim.HealthHealthy)
	})
}

// Automatic checks don't depend on reads, don't wait for each other, and don't block requests.
func TestRunHealthChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(hcloudsim.Options{})
		c := client(sim)
		fast := seedServer(t, sim, hcloudsim.ServerSeed{Name: "fast"})
		slow := seedServer(t, sim, hcloudsim.ServerSeed{Name: "slow"})
		lb := createWhole(t, c, nil, fast, slow).LoadBalancer // every 3 s, twice
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		answer := hcloudsim.HealthHealthy
		done := make(chan struct{})
		go func() {
			defer close(done)
			sim.RunHealthChecks(ctx, func(p hcloudsim.Probe) hcloudsim.Finding {
				if p.Target.Server == slow.ID {
					time.Sleep(2 * time.Second)
					return hcloudsim.Finding{Health: hcloudsim.HealthUnhealthy}
				}
				mu.Lock()
				defer mu.Unlock()
				return hcloudsim.Finding{Health: answer}
			})
		}()
		expect := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			now, _ := sim.LoadBalancer(lb.ID)
			var got []string
			for _, target := range now.Targets {
				got = append(got, target.HealthStatus[0].Status)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("targets are %v, want %s", got, want)
			}
		}
		expect(time.Second, "unknown unknown")
		expect(2500*time.Millisecond, "healthy unknown")
		expect(2*time.Second, "healthy unhealthy")
		mu.Lock()
		answer = hcloudsim.HealthUnhealthy
		mu.Unlock()
		expect(time.Second, "healthy unhealthy")
		expect(6*time.Second, "unhealthy unhealthy")
		cancel()
		<-done
		expect(0, "healthy healthy") // time decides again
	})
}
