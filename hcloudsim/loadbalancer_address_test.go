package hcloudsim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// addressWorld has a server with the /64 2001:db8:7:: and a load balancer.
func addressWorld(
	t *testing.T, options hcloudsim.Options,
) (sim *hcloudsim.Simulator, server, balancer int64) {
	t.Helper()
	sim = newSim(options)
	server = seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", PublicIPv6: prefix("2001:db8:7::/64")}).ID
	got := send(t, sim, "POST", "/v1/load_balancers", `{"name": "web", "load_balancer_type": "lb11", "location": "nbg1", "services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 8080, "proxyprotocol": false}]}`)
	if got.status != http.StatusCreated {
		t.Fatalf("%s", got.body)
	}
	return sim, server, sim.LoadBalancers()[0].ID
}

// shown is a target in the API's response.
type shown struct {
	Type   string
	Server struct {
		ID int64
		IP string
	}
	HealthStatus []struct{ Status string } `json:"health_status"`
}

func targetsOf(t *testing.T, sim *hcloudsim.Simulator, balancer int64) []shown {
	t.Helper()
	var body struct {
		LoadBalancer struct{ Targets []shown } `json:"load_balancer"`
	}
	noError(t, json.Unmarshal([]byte(send(t, sim, "GET", fmt.Sprintf("/v1/load_balancers/%d", balancer), "").body), &body))
	return body.LoadBalancer.Targets
}

func TestAddressesOfOneServerAreTargetsOfTheirOwn(t *testing.T) {
	sim, server, balancer := addressWorld(t, hcloudsim.Options{IPv6Source: netip.MustParseAddr("2001:db8:ffff::1")})
	do := func(action, ip string) response {
		at := ""
		if ip != "" {
			at = fmt.Sprintf(`, "ip": %q`, ip)
		}
		return send(t, sim, "POST", fmt.Sprintf("/v1/load_balancers/%d/actions/%s", balancer, action), fmt.Sprintf(`{"type": "server", "server": {"id": %d%s}}`, server, at))
	}
	one, other := netip.MustParseAddr("2001:db8:7::a"), netip.MustParseAddr("2001:db8:7::b")
	for _, ip := range []string{one.String(), other.String(), ""} {
		if got := do("add_target", ip); got.status != http.StatusCreated {
			t.Fatalf("adding %q: %s", ip, got.body)
		}
	}
	primary := targetsOf(t, sim, balancer)[2].Server.IP
	do("add_target", one.String()).want(t, http.StatusUnprocessableEntity, "target_already_defined")
	do("add_target", primary).want(t, http.StatusUnprocessableEntity, "target_already_defined")
	do("add_target", "2001:db8:7::").want(t, http.StatusUnprocessableEntity, "ip_not_assigned_to_server")

	noError(t, sim.SetTargetHealth(balancer, hcloudsim.TargetID{Server: server, IP: one}, 0,
		hcloudsim.HealthUnhealthy))
	seen := targetsOf(t, sim, balancer)
	if len(seen) != 3 || seen[0].Server.IP != one.String() || seen[0].HealthStatus[0].Status != "unhealthy" || seen[1].HealthStatus[0].Status != "healthy" || seen[2].HealthStatus[0].Status != "healthy" {
		t.Errorf("targets are %+v", seen)
	}
	if healthy := sim.HealthyTargets(balancer, 80); len(healthy) != 2 ||
		healthy[0] != (hcloudsim.PlaneTarget{
			TargetID: hcloudsim.TargetID{Server: server, IP: other}, Address: other,
		}) {
		t.Errorf("traffic goes to %+v", healthy)
	}
	if plane := sim.DataPlane().LoadBalancers[0]; plane.IPv6Source != netip.MustParseAddr("2001:db8:ffff::1") {
		t.Errorf("connections come from %s", plane.IPv6Source)
	}
	noError(t, sim.Restore(sim.Snapshot()))
	if again := targetsOf(t, sim, balancer); len(again) != 3 || again[0].Server.IP != one.String() ||
		again[2].Server.IP != primary {
		t.Errorf("restored: %+v", again)
	}

	if got := do("remove_target", one.String()); got.status != http.StatusCreated {
		t.Fatalf("%s", got.body)
	}
	do("remove_target", one.String()).want(t, http.StatusNotFound, "not_found")
	if got := do("remove_target", primary); got.status != http.StatusCreated {
		t.Fatalf("%s", got.body)
	}
	if left := targetsOf(t, sim, balancer); len(left) != 1 || left[0].Server.IP != other.String() {
		t.Errorf("left are %+v", left)
	}
}

// Whether a server can be a target at several addresses is an option.
func TestOneTargetPerServer(t *testing.T) {
	sim, server, balancer := addressWorld(t, hcloudsim.Options{OneTargetPerServer: true})
	add := func(ip string) response {
		return send(t, sim, "POST", fmt.Sprintf("/v1/load_balancers/%d/actions/add_target", balancer), fmt.Sprintf(`{"type": "server", "server": {"id": %d, "ip": %q}}`, server, ip))
	}
	if got := add("2001:db8:7::a"); got.status != http.StatusCreated {
		t.Fatalf("%s", got.body)
	}
	add("2001:db8:7::b").want(t, http.StatusUnprocessableEntity, "target_already_defined")
	plane := sim.DataPlane().LoadBalancers[0]
	if plane.IPv6Source != plane.IPv6 || !plane.IPv6.IsValid() {
		t.Errorf("connections come from %s, its address is %s", plane.IPv6Source, plane.IPv6)
	}
}
