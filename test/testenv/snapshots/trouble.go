package snapshots

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// Eventful is a cluster of count Nodes, at least three, with many events: the last Node's route is
// missing, a Node joins and waits for its podCIDRs, one was deleted and its podCIDRs are in
// quarantine, two routes are foreign, and of four Services one is healthy, one has an unhealthy
// target, one waits, and one is rejected.
func Eventful(count int) (*survey.Snapshot, error) {
	s, err := Healthy(count)
	if err != nil {
		return nil, err
	}
	unroute(s, count)
	joining(s)
	gone(s, count+2)
	route(s, routes.Route{Dst: netip.MustParsePrefix("192.168.178.0/24"), Via: netip.MustParseAddr("10.0.255.250")}, false)
	route(s, routes.Route{Dst: PodCIDR(count + 4), Via: netip.MustParseAddr("10.0.255.251")}, false)
	web := service(s, "shop", "web", 80)
	balance(s, web, 700, "192.0.2.7", 0)
	api := service(s, "shop", "api", 443)
	balance(s, api, 701, "192.0.2.8", 1)
	service(s, "mail", "smtp", 25).CreationTimestamp = ago(20 * time.Second)
	refused := service(s, "games", "lobby", 7777)
	refused.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	accepted(refused, metav1.ConditionFalse, "UnsupportedField", "port 7777: the cloud's load balancers carry no UDP: give the Service the class underlay.dev/address")
	slices.SortFunc(s.Services, func(a, b *corev1.Service) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
	events(s, NodeName(count, count))
	return s, nil
}

func unroute(s *survey.Snapshot, i int) {
	lost := routes.Route{Dst: PodCIDR(i), Via: Gateway(i)}
	s.Network.Routes = slices.DeleteFunc(s.Network.Routes, func(r routes.Route) bool {
		return r == lost
	})
	node := s.Node(NodeName(i, s.Network.Servers))
	node.Status.Conditions[1] = corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated", LastTransitionTime: ago(40 * time.Second),
		Message: "the route " + lost.Dst.String() + " is missing from the network",
	}
}

// joining adds a Node that has just joined.
func joining(s *survey.Snapshot) {
	s.Nodes = append(s.Nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-new", UID: "uid-worker-new", CreationTimestamp: ago(3 * time.Second)},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule,
		}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", LastTransitionTime: ago(2 * time.Second)},
			{
				Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated", LastTransitionTime: ago(2 * time.Second),
				Message: "waiting for a podCIDR and its route",
			},
		}},
	})
}

// gone puts the podCIDRs of a deleted Node into quarantine.
func gone(s *survey.Snapshot, i int) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-gone", UID: "uid-worker-gone"},
		Spec:       corev1.NodeSpec{ProviderID: "hcloud://99", PodCIDRs: []string{PodCIDR(i).String(), podCIDR6(i).String()}},
	}
	s.Ledger[0].Data[node.Name] = holding(node, ago(90*time.Second).Time).Record()
}

// service adds a Service of type LoadBalancer.
func service(s *survey.Snapshot, namespace, name string, port int32) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: ago(30 * time.Minute),
			Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"},
		},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			Ports: []corev1.ServicePort{
				{Port: port, NodePort: 30000 + port%1000, Protocol: corev1.ProtocolTCP},
			},
		},
	}
	s.Services = append(s.Services, svc)
	first := s.Nodes[0].Name
	s.EndpointSlices = append(s.EndpointSlices, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.240.1.9"}, NodeName: &first}},
	})
	return svc
}

func accepted(svc *corev1.Service, status metav1.ConditionStatus, reason, message string) {
	svc.Status.Conditions = []metav1.Condition{{
		Type: "underlay.dev/Accepted", Status: status, Reason: reason, Message: message, LastTransitionTime: ago(29 * time.Minute),
	}}
}

// balance adds the load balancer that the CCM wants for a Service, with a number of unhealthy
// targets.
func balance(s *survey.Snapshot, svc *corev1.Service, id int64, address string, unhealthy int) {
	i := slices.IndexFunc(s.Balancings(), func(b survey.Balancing) bool { return b.Service == svc })
	spec := s.Balancings()[i].Spec
	b := lb.State{
		ID: id, Name: spec.Name, Labels: spec.Labels(), Type: spec.Type, Location: "fsn1", NetworkZone: "eu-central",
		Algorithm: spec.Algorithm, Public: true, IPv4: netip.MustParseAddr(address),
		Network:   s.Network.ID,
		PrivateIP: netip.AddrFrom4([4]byte{10, 0, 254, byte(id)}), Listeners: spec.Listeners,
		Targets:      spec.Targets,
		Created:      ago(30 * time.Minute).Time,
		CheckResults: lb.CheckResults{Verdicts: map[int]map[lb.Target]lb.Verdict{}},
	}
	for _, l := range b.Listeners {
		b.Verdicts[l.Port] = map[lb.Target]lb.Verdict{}
		for n, t := range b.Targets {
			b.Verdicts[l.Port][t] = lb.Healthy
			if n < unhealthy {
				b.Verdicts[l.Port][t] = lb.Unhealthy
			}
		}
	}
	s.LoadBalancers = append(s.LoadBalancers, b)
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	accepted(svc, metav1.ConditionTrue, "Accepted", "the load balancer is as the Service requests")
	svc.Status.Conditions[0].Message = fmt.Sprintf("load balancer %d is as the Service asks", id)
}

func events(s *survey.Snapshot, node string) {
	add := func(before time.Duration, kind, reason, message string) {
		s.Events = append(s.Events, &corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: node}, Type: kind, Reason: reason, Message: message,
			Source: corev1.EventSource{Component: "node-route-controller"}, LastTimestamp: ago(before), FirstTimestamp: ago(before),
		})
	}
	add(49*time.Minute, corev1.EventTypeNormal, "PodCIDRAllocated", "allocated")
	add(49*time.Minute, corev1.EventTypeNormal, "RouteCreated", "routed")
	add(40*time.Second, corev1.EventTypeWarning, "RouteMissing", "the route is missing from the network")
}
