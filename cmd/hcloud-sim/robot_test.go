package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	hrobot "github.com/syself/hrobot-go"
)

const robotSeedText = `
networks:
  - name: cluster
    ip_range: 10.0.0.0/8
    subnets: [{ip_range: 10.0.0.0/16}, {ip_range: 10.1.0.0/24, type: vswitch, vswitch_id: 4321}]
robot:
  servers: [{number: 321, name: node-3, ipv4: 203.0.113.1}]
  vswitches: [{id: 4321, vlan: 4001, servers: [{number: 321}]}]
  failovers: [{net: 203.0.113.100/32, server: 321}]
`

// The services are connected: a vSwitch shows the cloud's subnet, and a dedicated server's address
// may be a load balancer's target.
func TestServesRobot(t *testing.T) {
	api, robot := startRobot(t, "--seed="+write(t, "seed.yaml", robotSeedText), "--robot-user=me", "--robot-password-file="+write(t, "password", "secret\n"))
	c := hrobot.NewBasicAuthClient("me", "secret")
	c.SetBaseURL("http://" + robot)
	if s, err := c.ServerGet(321); err != nil || s.Name != "node-3" {
		t.Errorf("server is %+v, %v", s, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+robot+"/vswitch/4321", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("me", "secret")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); !strings.Contains(string(body), `"cloud_network":[{"id":1001,"ip":"10.1.0.0","mask":24,"gateway":"10.1.0.1"}]`) {
		t.Errorf("vSwitch is %s", body)
	}

	cloud := hcloud.NewClient(hcloud.WithToken("any"), hcloud.WithEndpoint("http://"+api+"/v1"))
	made, _, err := cloud.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: "eu-central",
	})
	if err != nil {
		t.Fatal(err)
	}
	for ip, owned := range map[string]bool{"203.0.113.1": true, "203.0.113.2": false} {
		_, _, err := cloud.LoadBalancer.AddIPTarget(t.Context(), made.LoadBalancer,
			hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP(ip)})
		if (err == nil) != owned {
			t.Errorf("target %s: %v", ip, err)
		}
	}
}

func TestForbiddenLogin(t *testing.T) {
	_, robot := startRobot(t, "--robot-user=me", "--robot-password=secret", "--robot-forbidden-login")
	response, err := http.Get("http://" + robot + "/server")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a failed login is answered %s", response.Status)
	}
}

func TestRobotFlagsAreChecked(t *testing.T) {
	err := run(context.Background(), []string{
		"--robot-blocked=maybe", "--robot-user=me", "--robot-quota=GET /servers=5", "--robot-quota=GET /server=-2",
	}, io.Discard, io.Discard)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--robot-blocked=maybe", "--robot-user", "--robot-quota=GET /servers=5", "--robot-quota=GET /server=-2"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
	for want, seed := range map[string]string{
		"server 5: there is none": "robot: {vswitches: [{servers: [{number: 5}]}]}",
		"no_ipv4 and no_ipv6":     "robot: {servers: [{no_ipv4: true, no_ipv6: true}]}",
		"exists already":          "robot: {servers: [{number: 1}], failovers: [{net: 203.0.113.1/32, server: 1}, {net: 203.0.113.1/32, server: 1}]}",
		"nmae":                    "robot: {servers: [{nmae: a}]}",
	} {
		if err := run(context.Background(), []string{"--seed=" + write(t, "seed.yaml", seed)}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("seed %s: %v, want %q", seed, err, want)
		}
	}
}
