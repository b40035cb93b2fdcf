package state_test

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/demo/state"
	"github.com/underlay-ccm/underlay/test/demo/state/statetest"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

func TestNodeOf(t *testing.T) {
	want := statetest.Node(1)
	want.Taints = []string{"a/b"}
	got := state.NodeOf(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node-1", CreationTimestamp: metav1.NewTime(statetest.Epoch()),
			Labels: map[string]string{"node.kubernetes.io/instance-type": "cx22", "topology.kubernetes.io/region": "fsn1"},
		},
		Spec: corev1.NodeSpec{
			ProviderID: "hcloud://1", PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"},
			Taints: []corev1.Taint{{Key: "a/b", Effect: "NoSchedule"}, {Key: "a/b", Effect: "NoExecute"}},
		},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: "Hostname", Address: "x"}, {Type: "InternalIP", Address: "10.0.0.1"}, {Type: "ExternalIP", Address: "192.0.2.1"}},
			Conditions: []corev1.NodeCondition{{Type: "NetworkUnavailable", Status: "False", Reason: "RouteCreated"}, {Type: "DiskPressure", Status: "False"}, {Type: "Ready", Status: "True"}},
		},
	})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestServiceOf(t *testing.T) {
	got := state.ServiceOf(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u-1"},
		Spec: corev1.ServiceSpec{
			ExternalTrafficPolicy: "Local", HealthCheckNodePort: 30999,
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.80"}, {IP: "2001:db8::80"}}}},
	})
	if want := statetest.Service(); !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestCloudOf(t *testing.T) {
	w, _ := statetest.State()
	servers := []schema.Server{
		{ID: 1, Name: "node-1", ServerType: schema.ServerType{Name: "cx22"}, Location: schema.Location{Name: "fsn1"}, PrivateNet: []schema.ServerPrivateNet{{Network: 8, IP: "10.9.9.9"}, {Network: 7, IP: "10.0.0.1"}}},
		{ID: 2, Name: "node-2", ServerType: schema.ServerType{Name: "cx22"}, Location: schema.Location{Name: "fsn1"}, PrivateNet: []schema.ServerPrivateNet{{Network: 7, IP: "10.0.0.2"}}},
	}
	network := schema.Network{ID: 7, Routes: []schema.NetworkRoute{
		{Destination: "192.168.178.0/24", Gateway: "10.0.0.250"},
		{Destination: "10.244.1.0/24", Gateway: "10.0.0.1"},
		{Destination: "10.244.2.0/24", Gateway: "10.0.0.2"},
	}}
	target := func(id int64) schema.LoadBalancerTarget {
		return schema.LoadBalancerTarget{
			Type: "server", Server: &schema.LoadBalancerTargetServer{ID: id}, UsePrivateIP: true,
			HealthStatus: []schema.LoadBalancerTargetHealthStatus{{ListenPort: 80, Status: "healthy"}},
		}
	}
	balancer := schema.LoadBalancer{
		Name: "lb", LoadBalancerType: schema.LoadBalancerType{Name: "lb11"}, Location: schema.Location{Name: "fsn1"},
		Labels: map[string]string{"underlay.dev/svc-u-1": ""},
		Services: []schema.LoadBalancerService{{
			ListenPort: 80, DestinationPort: 30080,
			HealthCheck: &schema.LoadBalancerServiceHealthCheck{
				Protocol: "http", Port: 30999, HTTP: &schema.LoadBalancerServiceHealthCheckHTTP{Path: "/healthz"},
			},
		}},
		Targets: []schema.LoadBalancerTarget{target(1), target(2), {Type: "ip"}},
	}
	got := state.CloudOf(servers, network, []schema.LoadBalancer{balancer})
	if !reflect.DeepEqual(got, w.Cloud) {
		t.Errorf("\n got %+v\nwant %+v", got, w.Cloud)
	}
}

func TestCountRequests(t *testing.T) {
	got := state.CountRequests([]hcloudsim.Request{
		{Method: "GET", Path: "/v1/servers", Status: http.StatusOK},
		{Method: "POST", Path: "/v1/networks/12/actions/add_route", Status: http.StatusCreated},
		{Method: "GET", Path: "/v1/servers", Status: http.StatusTooManyRequests},
		{Method: "GET", Path: "/v1/servers/3", Status: http.StatusNotFound},
		{Method: "DELETE", Path: "/v1/servers/3", Status: http.StatusNotFound},
		{Method: "POST", Path: "/v1/networks/7/actions/add_route", Status: http.StatusConflict},
		{Method: "GET", Path: "/v1/networks", Dropped: true},
	})
	want := []state.RequestCount{
		{Method: "GET", Path: "/networks", Count: 1, Refused: 1},
		{Method: "POST", Path: "/networks/{id}/actions/add_route", Count: 2, Refused: 1},
		{Method: "GET", Path: "/servers", Count: 2, Refused: 1},
		{Method: "DELETE", Path: "/servers/{id}", Count: 1, Refused: 1},
		{Method: "GET", Path: "/servers/{id}", Count: 1, NotFound: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestCountWrites(t *testing.T) {
	write := func(agent, resource, name string) controlplane.AuditEvent {
		return controlplane.AuditEvent{UserAgent: "underlay-ccm/v0 (linux/amd64) kubernetes/abc/" + agent, Verb: "patch", Resource: resource, Name: name}
	}
	got := state.CountWrites([]controlplane.AuditEvent{
		write("node-ipam-controller", "nodes", "b"), write("node-route-controller", "nodes", "b"), write("node-route-controller", "nodes", "a"),
		write("node-route-controller", "events", "a"), write("cloud-node-controller", "nodes", "a"),
	})
	want := []state.WriteCount{{Node: "a", Routes: 1}, {Node: "b", IPAM: 1, Routes: 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}
