package hcloudsim_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// FuzzHandler sends arbitrary requests to a small project. Each response must be JSON in the API's
// form, and never an internal error.
func FuzzHandler(f *testing.F) {
	for _, seed := range [][3]string{
		{"GET", "/v1/servers?page=2&per_page=1&sort=name:desc&label_selector=a+in+(b)", ""},
		{"GET", "/v1/actions?id=1004&status=running", ""},
		{"GET", "/v1/networks/1001/actions", ""},
		{"POST", "/v1/servers", `{"name":"x","server_type":"cx22","image":5,"networks":[1001],"labels":{"a":"b"},"public_net":{"enable_ipv4":false}}`},
		{"PUT", "/v1/servers/1002", `{"name":"y","labels":{}}`},
		{"POST", "/v1/servers/1002/actions/attach_to_network", `{"network":1001,"ip":"10.0.0.9","alias_ips":["10.0.0.10",null]}`},
		{"POST", "/v1/servers/1002/actions/change_alias_ips", `{"network":1001,"alias_ips":["10.0.0.10"]}`},
		{"DELETE", "/v1/servers/1002", ""},
		{"POST", "/v1/networks", `{"name":"n","ip_range":"10.0.0.0/8","subnets":[{"type":"cloud","network_zone":"eu-central"}],"routes":[{"destination":"0.0.0.0/0","gateway":"10.0.0.2"}]}`},
		{"POST", "/v1/networks/1001/actions/add_route", `{"destination":"10.9.0.0/24","gateway":"10.0.0.2"}`},
		{"POST", "/v1/networks/1001/actions/add_subnet", `{"type":"vswitch","network_zone":"eu-central","vswitch_id":1}`},
		{"POST", "/v1/networks/1001/actions/change_ip_range", `{"ip_range":"10.0.0.0/8"}`},
		{"POST", "/v1/load_balancers", `{"name":"l","load_balancer_type":1,"location":"1","network":1001,"services":[{"protocol":"https","http":{"redirect_http":true}}],"targets":[{"type":"label_selector","label_selector":{"selector":"!x"}}]}`},
		{"POST", "/v1/load_balancers/1003/actions/add_service", `{"protocol":"http","health_check":{"http":{}}}`},
		{"POST", "/v1/load_balancers/1003/actions/update_service", `{"listen_port":80,"protocol":"https","http":{}}`},
		{"POST", "/v1/load_balancers/1003/actions/add_target", `{"type":"ip","ip":{"ip":"10.0.0.5"}}`},
		{"POST", "/v1/load_balancers/1003/actions/change_dns_ptr", `{"ip":"::1","dns_ptr":null}`},
		{"POST", "/v1/load_balancers/1003/actions/disable_public_interface", ""},
		{"POST", "/v1/servers/1002/actions/change_dns_ptr", `{"ip":"2001:db8:0:1::5","dns_ptr":"a.b"}`},
		{"POST", "/v1/servers/1002/actions/change_protection", `{"delete":true,"rebuild":true}`},
		{"POST", "/v1/servers/1002/actions/reboot", ""},
		{"GET", "/v1/networks/1001/members?type=server&status=ok&subnet=10.0.0.0/16&sort=ip", ""},
		{"GET", "/v1/images?architecture=arm&name=debian-12&sort=created:desc", ""},
		{"GET", "/v1/images/5", ""},
		{"POST", "/v1/ssh_keys", `{"name":"k","public_key":"` + publicKey + `"}`},
		{"GET", "/v1/ssh_keys?fingerprint=" + fingerprint, ""},
		{"POST", "/v1/certificates", `{"name":"c","type":"managed","domain_names":["*.example.com"]}`},
		{"POST", "/v1/certificates", `{"name":"c","certificate":"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----","private_key":"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----"}`},
		{"PUT", "/v1/certificates/1006", `{"name":"d"}`},
		{"DELETE", "/v1/certificates/1006", ""},
		{"POST", "/v1/certificates/1006/actions/retry", ""},
		{"POST", "/v1/load_balancers/1003/actions/update_service", `{"listen_port":80,"protocol":"https","http":{"certificates":[1006,-1]}}`},
		{"POST", "/v1/servers", `{"name":"x","server_type":-5,"image":null,"ssh_keys":[{}],"user_data":7}`},
		{"POST", "/v1/floating_ips", `{"type":"ipv6","server":1002,"home_location":1,"description":null}`},
		{"POST", "/v1/floating_ips/1007/actions/assign", `{"server":-1}`},
		{"POST", "/v1/volumes", `{"name":"v","size":10,"server":1002,"format":"xfs"}`},
		{"POST", "/v1/firewalls", `{"name":"w","apply_to":[{"type":"label_selector","label_selector":{"selector":"!a"}}],"rules":[{"direction":"in","protocol":"tcp","port":"1-2","source_ips":["::/0"]}]}`},
		{"POST", "/v1/placement_groups", `{"name":"g","type":"spread"}`},
		{"POST", "/v1/servers/1002/actions/create_image", `{"type":"snapshot","labels":{"a":"b"}}`},
		{"POST", "/v1/servers/1002/actions/rebuild", `{"image":5,"user_data":""}`},
		{"POST", "/v1/servers/1002/actions/attach_iso", `{"iso":1}`},
		{"PUT", "/v1/images/1", `{"type":"snapshot"}`},
		{"GET", "/v1/servers/1002/metrics?type=cpu,disk&start=9999-12-31T00:00:00-23:59&end=9999-12-31T23:59:59-23:59&step=9223372036854775807", ""},
		{"CONNECT", "/v1/%2e%2e/%2f", "\x00"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || !validMethod(method) {
			t.Skip("not a request that net/http lets through")
		}
		sim := newSim(hcloudsim.Options{})
		n := seedNetwork(t, sim)
		s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
		if _, _, err := client(sim).LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
			Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: "eu-central",
			Targets:  []hcloud.LoadBalancerCreateOptsTarget{{Type: "server", Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: s}}},
			Services: []hcloud.LoadBalancerCreateOptsService{{Protocol: "http"}},
		}); err != nil {
			t.Fatal(err)
		}
		send(t, sim, "POST", "/v1/certificates", `{"name":"c0","type":"managed","domain_names":["example.com"]}`).want(t, http.StatusCreated, "")

		r := httptest.NewRequest(http.MethodGet, "http://sim.test/", strings.NewReader(body))
		r.Method, r.URL = method, u
		r.Header.Set("Authorization", "Bearer "+token)
		recorder := httptest.NewRecorder()
		sim.ServeHTTP(recorder, r)
		checkAnswer(t, method, recorder)
		for _, path := range []string{
			"/v1/servers", "/v1/networks", "/v1/load_balancers", "/v1/certificates", "/v1/ssh_keys", "/v1/images",
			"/v1/servers/actions", "/v1/certificates/actions",
		} {
			send(t, sim, "GET", path, "").want(t, http.StatusOK, "") // the simulator still works
		}
		if err := newSim(hcloudsim.Options{}).Restore(sim.Snapshot()); err != nil {
			t.Errorf("what the API allows can't be restored: %v", err)
		}
	})
}

func checkAnswer(t *testing.T, method string, got *httptest.ResponseRecorder) {
	t.Helper()
	if got.Code < 200 || got.Code >= 500 || got.Code/100 == 3 {
		t.Fatalf("answer is %d %s", got.Code, got.Body)
	}
	if got.Code == http.StatusNoContent || method == http.MethodHead {
		return
	}
	var object map[string]any
	if err := json.Unmarshal(got.Body.Bytes(), &object); err != nil {
		t.Fatalf("answer %d is not a JSON object: %s", got.Code, got.Body)
	}
	failure, failed := object["error"].(map[string]any)
	if failed != (got.Code >= 400) || (failed && failure["code"] == "") {
		t.Errorf("answer %d has the error %v", got.Code, failure)
	}
}

func validMethod(method string) bool {
	_, err := http.NewRequest(method, "http://sim.test/", nil)
	return err == nil && method != ""
}

// FuzzRestore restores arbitrary data. An accepted state must be returned by Snapshot.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"servers":[{"id":7,"name":"a","public_net":{"ipv4":null,"ipv6":{"ip":"2001:db8::/64"}},"private_net":[{"network":8,"ip":"10.0.0.2"}]}]}`))
	f.Add([]byte(`{"networks":[{"id":8,"ip_range":"10.0.0.0/8","subnets":[{"type":"cloud","ip_range":"10.0.0.0/16"}],"routes":[{"destination":"10.1.0.0/24","gateway":"10.0.0.2"}]}]}`))
	f.Add([]byte(`{"load_balancers":[{"id":9,"public_net":{"ipv4":{"ip":"192.0.2.1"},"ipv6":{"ip":"::1"}},"services":[{}],"targets":[{"type":"server","server":{"id":7}}]}],"actions":[{"id":3}],"target_health":[{"load_balancer":9}]}`))
	f.Add([]byte(`{"certificates":[{"id":1,"status":{}}],"ssh_keys":[{"id":2}],"images":[{"id":3}]}`))
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		sim := newSim(hcloudsim.Options{OnChange: func(hcloudsim.DataPlane) {}})
		if sim.Restore(snapshot) != nil {
			return
		}
		for _, path := range []string{"/v1/servers", "/v1/networks", "/v1/load_balancers", "/v1/certificates", "/v1/ssh_keys", "/v1/images", "/v1/servers/actions"} {
			send(t, sim, "GET", path, "").want(t, http.StatusOK, "")
		}
	})
}
