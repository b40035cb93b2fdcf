package doctor

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/bgp"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
)

// storedAddresses is the ledger of the fixture: worker-1 holds an address, and all announce
// another.
const storedAddresses = `{"version":1,"groups":[["control-1","worker-1","worker-2"]],"addresses":[` +
	`{"address":"10.0.200.1","node":"worker-1","epoch":2,"services":[{"uid":"uid-edge","namespace":"shop","name":"edge"}]},` +
	`{"address":"198.51.100.1","group":0,"services":[{"uid":"uid-far","namespace":"shop","name":"far"}]},` +
	`{"address":"10.0.200.2","epoch":7}]}`

// addressed makes the nodes hold addresses for two Services.
func addressed(s *survey.Snapshot) {
	s.Config.Addresses = config.Addresses{
		Classless: s.Config.Provider == config.Metal,
		Pools: []config.AddressPool{
			{Pool: addresses.Pool{Name: "segment", Ranges: ranges("10.0.200.0/28")}, Mover: addresses.Layer2, Field: "addresses.pools[0].ranges"},
			{Pool: addresses.Pool{Name: "routed", Ranges: ranges("198.51.100.1"), OnRequest: true}, Mover: addresses.BGP, Field: "addresses.pools[1].ranges"},
		},
		BGP: config.BGP{ASN: 64512, Peers: []config.BGPPeer{{Peer: bgp.Peer{Name: "edge", Address: netip.MustParseAddr("10.0.0.1"), ASN: 64500}}}},
	}
	s.AddressLedger = &corev1.ConfigMap{Data: map[string]string{"ledger": storedAddresses}}
	for i, n := range s.Nodes {
		r := addresses.Report{
			Held:    []addresses.Hold{{Address: netip.MustParseAddr("198.51.100.1")}},
			Routers: []addresses.Router{{Name: "edge", Established: true, Announced: 1}},
		}
		if i == 1 {
			r.Held = append(r.Held, addresses.Hold{Address: netip.MustParseAddr("10.0.200.1"), Epoch: 2})
		}
		reported(n, r, time.Hour)
	}
	s.Services = append(s.Services, addressService("edge", "10.0.200.1"), addressService("far", "198.51.100.1"))
}

// addressService is a Service that has an address of the pools.
func addressService(name, address string) *corev1.Service {
	class := "underlay.dev/address"
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: ago(24 * time.Hour)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, ClusterIP: "10.96.0.81", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30081, Protocol: corev1.ProtocolTCP}},
		},
		Status: corev1.ServiceStatus{
			LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: address}}},
			Conditions:   []metav1.Condition{{Type: "underlay.dev/Accepted", Status: metav1.ConditionTrue, Reason: "Accepted"}},
		},
	}
}

func ranges(texts ...string) (out []addresses.Range) {
	for _, text := range texts {
		r, err := addresses.ParseRange(text)
		if err != nil {
			panic(err)
		}
		out = append(out, r)
	}
	return out
}

// reported adds a report of a Node's agent, of a given age.
func reported(n *corev1.Node, r addresses.Report, since time.Duration) {
	text, err := r.MarshalText()
	if err != nil {
		panic(err)
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[addresses.ReportAnnotation] = string(text)
	at := ago(since)
	n.ManagedFields = append(n.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "underlay-agent", Operation: metav1.ManagedFieldsOperationUpdate, Time: &at, Subresource: "status",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:underlay.dev/addresses":{}}}}`),
	})
}

// reports changes the report of a Node's agent, at a time in the past.
func reports(node int, since time.Duration, change func(*addresses.Report)) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		r, err := addresses.ParseReport(s.Nodes[node].Annotations[addresses.ReportAnnotation])
		if err != nil {
			panic(err)
		}
		change(&r)
		n := s.Nodes[node]
		n.ManagedFields = n.ManagedFields[:len(n.ManagedFields)-1]
		reported(n, r, since)
	}
}

// edge is the address that worker-1 holds.
func edge() netip.Addr { return netip.MustParseAddr("10.0.200.1") }

func refusing(reason addresses.ProblemReason, by string) func(*addresses.Report) {
	return func(r *addresses.Report) {
		r.Held = r.Held[1:]
		r.Refused = []addresses.Problem{{Address: edge(), Reason: reason, By: by, Text: "as the agent says"}}
	}
}

// ledgerAs is a ledger with a replaced text, changed at a time in the past.
func ledgerAs(old, new string, since time.Duration) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		text := strings.Replace(s.AddressLedger.Data["ledger"], old, new, 1)
		if old != "" && text == s.AddressLedger.Data["ledger"] {
			panic("the ledger has no " + old)
		}
		at := ago(since)
		s.AddressLedger.Data["ledger"] = text
		s.AddressLedger.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &at}}
	}
}

// silenced makes both nodes that watch worker-1 report it as unreachable.
func silenced(since time.Duration) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		for _, node := range []int{0, 2} {
			reports(node, since, func(r *addresses.Report) {
				r.Silent = []addresses.Endpoint{{Node: nameOf(1), Port: addresses.ProxyPort}}
			})(s)
		}
	}
}

func unaccepted(name, reason, message string, published bool) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		svc := addressService(name, "")
		svc.Status.LoadBalancer.Ingress = nil
		svc.Status.Conditions[0] = metav1.Condition{Type: "underlay.dev/Accepted", Status: metav1.ConditionFalse, Reason: reason, Message: message}
		if published {
			svc.UID = "uid-edge"
		}
		s.Services = append(s.Services, svc)
	}
}

// taken assigns addresses of the segment to Services, from the first to the last number.
func taken(first, last int) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		var more strings.Builder
		for i := first; i <= last; i++ {
			fmt.Fprintf(&more, `{"address":"10.0.200.%d","node":"worker-1","epoch":1,"services":[{"uid":"uid-%d","namespace":"shop","name":"s%d"}]},`, i, i, i)
			reports(1, time.Hour, func(r *addresses.Report) {
				r.Held = append(r.Held, addresses.Hold{Address: netip.MustParseAddr(fmt.Sprintf("10.0.200.%d", i)), Epoch: 1})
			})(s)
		}
		ledgerAs(`"addresses":[`, `"addresses":[`+more.String(), time.Hour)(s)
	}
}

func seededAddresses() []seeded {
	with := func(seeds ...func(*survey.Snapshot)) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			addressed(s)
			for _, seed := range seeds {
				seed(s)
			}
		}
	}
	metal := shape{metal: true}
	const address, worker, ledger = "address/10.0.200.1", "Node/worker-1", "ConfigMap/kube-system/underlay-addresses"
	cases := []seeded{
		{name: "a ledger of addresses that can't be read", seed: with(ledgerAs(`"version":1`, `"version":7`, time.Hour)), check: "address-ledger", severity: Error, object: ledger, reports: []string{"version 7"}, do: "edit configmap underlay-addresses"},
		{name: "no ledger of addresses", seed: with(func(s *survey.Snapshot) { s.AddressLedger = nil }), check: "address-ledger", severity: Error, object: ledger, reports: []string{"shop/edge (10.0.200.1)"}, do: "from a backup"},
		{name: "an empty ledger of addresses", seed: with(func(s *survey.Snapshot) { s.AddressLedger.Data = nil }), check: "address-ledger", severity: Error, object: ledger, reports: []string{"lost or empty"}},
		{name: "a pool of addresses was removed", seed: with(func(s *survey.Snapshot) { s.Config.Addresses.Pools = s.Config.Addresses.Pools[:1] }), check: "address-removed-pool", severity: Error, object: "address/198.51.100.1", reports: []string{"shop/far"}, do: "onRequest: true"},
		{name: "all pools of addresses were removed", seed: with(func(s *survey.Snapshot) { s.Config.Addresses = config.Addresses{} }), check: "address-removed-pool", severity: Error, object: address, reports: []string{"shop/edge"}},
		{name: "no address is left", seed: with(taken(3, 15), func(s *survey.Snapshot) {
			ledgerAs(`"10.0.200.2","epoch":7`, `"10.0.200.2","node":"worker-1","epoch":7,"services":[{"uid":"uid-2"}]`, time.Hour)(s)
			reports(1, time.Hour, func(r *addresses.Report) {
				r.Held = append(r.Held, addresses.Hold{Address: netip.MustParseAddr("10.0.200.2"), Epoch: 7})
			})(s)
			s.Config.Addresses.Pools[0].Ranges = ranges("10.0.200.1-10.0.200.15")
		}), check: "address-pool-room", severity: Warning, object: "pool/segment", reports: []string{"0 of 15 IPv4 addresses of segment"}, do: "add ranges"},
		{name: "hardly an address is left", seed: with(taken(3, 15), func(s *survey.Snapshot) { s.Config.Addresses.Pools[0].Ranges = ranges("10.0.200.1-10.0.200.15") }), check: "address-pool-room", severity: Warning, object: "pool/segment", reports: []string{"1 of 15"}},
		{name: "the only address is taken", seed: with(func(s *survey.Snapshot) { s.Config.Addresses.Pools[0].Ranges = ranges("10.0.200.1") }), check: "address-pool-room", severity: Warning, object: "pool/segment", reports: []string{"0 of 1 "}, do: "onRequest: true"},
		{name: "a Service gets no address", seed: with(unaccepted("more", "AddressPoolExhausted", "no address is free", false)), check: "address-waiting", severity: Error, object: "Service/shop/more", reports: []string{"no address", "AddressPoolExhausted: no address is free"}},
		{name: "a Service doesn't get all", seed: with(unaccepted("both", "NoAddressPool", "no pool has IPv6", true)), check: "address-waiting", severity: Warning, object: "Service/shop/both", reports: []string{"it has 10.0.200.1", "NoAddressPool"}},
		{name: "nobody looks at a Service", seed: with(unaccepted("more", "", "", false), func(s *survey.Snapshot) { s.Services[len(s.Services)-1].Status.Conditions = nil }), check: "address-waiting", severity: Error, object: "Service/shop/more", reports: []string{"24h ago"}, do: "leads"},
		{name: "kube-proxy in mode ipvs", seed: with(withProxyConfig("mode: nftables", "mode: ipvs\nipvs: {strictARP: true}")), check: "address-kube-proxy", severity: Error, object: "ConfigMap/kube-system/kube-proxy", reports: []string{"mode is ipvs", "rejected"}, do: "mode: nftables"},
		{name: "an address is held twice", seed: with(reports(2, time.Hour, func(r *addresses.Report) { r.Held = append(r.Held, addresses.Hold{Address: edge(), Epoch: 1}) })), check: "address-held-twice", severity: Error, object: address, reports: []string{"worker-1 and worker-2", "only worker-1"}},
		{name: "a stranger has an address", seed: with(reports(1, time.Minute/2, refusing(addresses.InUse, "02:00:00:00:00:09"))), check: "address-in-use", severity: Error, object: address, reports: []string{"02:00:00:00:00:09", "worker-1"}, do: "leave it out of the pool"},
		{name: "an address is on no segment", seed: with(reports(1, time.Hour, refusing(addresses.OffSegment, ""))), check: "address-not-held", severity: Error, object: address, reports: []string{"worker-1", "as the agent says"}, do: "mover: bgp"},
		{name: "the holder fails", seed: with(reports(1, time.Hour, refusing(addresses.Failed, ""))), check: "address-not-held", severity: Error, object: address, reports: []string{"worker-1 is to hold it, and does not", "as the agent says"}},
		{name: "the holder says nothing of it", seed: with(reports(1, time.Hour, func(r *addresses.Report) { r.Held = r.Held[1:] })), check: "address-not-held", severity: Error, object: address, reports: []string{"does not report that it does"}},
		{name: "an address has no holder", seed: with(reports(1, time.Hour, func(r *addresses.Report) { r.Held = r.Held[1:] }), ledgerAs(`"node":"worker-1","epoch":2,`, "", time.Hour)), check: "address-not-held", severity: Error, object: address, reports: []string{"no node could hold it"}},
		{name: "the holder is silent", seed: with(silenced(2 * time.Minute)), check: "address-silent", severity: Error, object: address, reports: []string{"worker-1 holds it", "10256"}, do: "10267", also: []string{"address-node"}},
		{name: "the holder's agent is silent", seed: with(func(s *survey.Snapshot) {
			for _, node := range []int{0, 2} {
				reports(node, time.Hour, func(r *addresses.Report) {
					r.Silent = []addresses.Endpoint{{Node: nameOf(1), Port: addresses.AgentPort}}
				})(s)
			}
		}), check: "address-silent", severity: Error, object: address, reports: []string{"port 10267"}, also: []string{"address-node"}},
		{name: "a node without addresses is silent", seed: with(func(s *survey.Snapshot) {
			for _, node := range []int{0, 1} {
				reports(node, time.Hour, func(r *addresses.Report) {
					r.Silent = []addresses.Endpoint{{Node: nameOf(2), Port: addresses.ProxyPort}}
				})(s)
			}
		}), check: "address-node", severity: Warning, object: "Node/worker-2", reports: []string{"port 10256"}, do: "reach each other"},
		{name: "the holder has no endpoint that answers", seed: with(func(s *survey.Snapshot) {
			ledgerAs(`"name":"edge"}`, `"name":"edge","local":true,"check":30123}`, time.Hour)(s)
			for _, node := range []int{0, 2} {
				reports(node, time.Hour, func(r *addresses.Report) {
					r.Silent = []addresses.Endpoint{{Node: nameOf(1), Port: 30123}}
				})(s)
			}
			s.EndpointSlices = append(s.EndpointSlices, &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge-1", Labels: map[string]string{discoveryv1.LabelServiceName: "edge"}},
				Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.10"}}},
			})
		}), check: "address-silent", severity: Error, object: address, reports: []string{"port 30123"}},
		{name: "no node may hold an address, and one does", seed: with(func(s *survey.Snapshot) {
			s.Services[len(s.Services)-2].Status.Conditions[0] = metav1.Condition{Type: "underlay.dev/Accepted", Status: metav1.ConditionFalse, Reason: "NoNodeForAddress", Message: "none is ready"}
		}), check: "address-waiting", severity: Warning, object: "Service/shop/edge", reports: []string{"it has 10.0.200.1: NoNodeForAddress: none is ready"}},
		{name: "a router speaks with nobody", seed: with(routersDown(0, 1, 2)), check: "address-router", severity: Error, object: "router/edge", reports: []string{"3 of 3", "10.0.0.1", "Active"}, do: "TCP port 179"},
		{name: "a router doesn't speak with one", seed: with(routersDown(2)), check: "address-router", severity: Warning, object: "router/edge", reports: []string{"1 of 3", "worker-2"}},
		{name: "an agent that knows no addresses", seed: with(func(s *survey.Snapshot) { s.Nodes[2].Annotations = nil }), check: "address-node", severity: Warning, object: "Node/worker-2", reports: []string{"reports nothing"}, do: "update the agent"},
		{name: "a report that can't be read", seed: with(func(s *survey.Snapshot) { s.Nodes[2].Annotations[addresses.ReportAnnotation] = "{" }), check: "address-node", severity: Warning, object: "Node/worker-2", reports: []string{"reading a node's report"}, do: "underlay.dev/addresses"},
		{name: "kube-proxy of a node isn't healthy", seed: with(reports(2, time.Hour, func(r *addresses.Report) { r.Unfit = "kube-proxy answers 503" })), check: "address-node", severity: Warning, object: "Node/worker-2", reports: []string{"kube-proxy answers 503"}, do: "k8s-app=kube-proxy"},
		{name: "watchers can't ask kube-proxy", seed: with(withProxyConfig(`healthzBindAddress: ""`, "healthzBindAddress: 127.0.0.1:10256")), check: "kube-proxy-health-port", severity: Error, object: "ConfigMap/kube-system/kube-proxy", reports: []string{"none seems to respond"}, do: "0.0.0.0:10256"},
	}
	for i := range cases {
		cases[i].shape = metal
	}
	return cases
}

func routersDown(nodes ...int) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		for _, node := range nodes {
			reports(node, time.Hour, func(r *addresses.Report) { r.Routers[0] = addresses.Router{Name: "edge", State: "Active"} })(s)
		}
	}
}

// Nodes that hold addresses cause no finding, on metal and in the cloud, nor do temporary states.
func TestAddressesWithoutTrouble(t *testing.T) {
	for name, seed := range map[string]func(*survey.Snapshot){
		"as it should be": func(*survey.Snapshot) {},
		"an address moves": func(s *survey.Snapshot) {
			ledgerAs(`"node":"worker-1","epoch":2`, `"node":"worker-2","epoch":3`, 20*time.Second)(s)
		},
		"the ledger has just been begun": func(s *survey.Snapshot) {
			s.AddressLedger.Data["ledger"] = ""
			s.Services = s.Services[:len(s.Services)-2]
			for i := range s.Nodes {
				reports(i, time.Hour, func(r *addresses.Report) { r.Held = nil })(s)
			}
		},
		"a holder turned silent": silenced(10 * time.Second),
		"one watcher hears nothing": reports(0, time.Hour, func(r *addresses.Report) {
			r.Silent = []addresses.Endpoint{{Node: nameOf(1), Port: addresses.ProxyPort}}
		}),
		"a session is being made": reports(2, 10*time.Second, func(r *addresses.Report) { r.Routers[0].Established = false }),
		"kube-proxy restarts":     reports(2, 10*time.Second, func(r *addresses.Report) { r.Unfit = "kube-proxy answers 503" }),
		"a node on another segment": reports(2, time.Hour, func(r *addresses.Report) {
			r.Refused = refusal(addresses.OffSegment)
		}),
		"a Node joins": func(s *survey.Snapshot) {
			s.Nodes[2].Annotations = nil
			s.Nodes[2].CreationTimestamp = ago(time.Minute)
		},
		"a Service is new": func(s *survey.Snapshot) {
			svc := addressService("new", "")
			svc.CreationTimestamp, svc.Status = ago(time.Minute), corev1.ServiceStatus{}
			s.Services = append(s.Services, svc)
		},
		"a Service is being deleted": func(s *survey.Snapshot) {
			unaccepted("leaves", "NoAddressPool", "none", false)(s)
			at := ago(time.Second)
			s.Services[len(s.Services)-1].DeletionTimestamp = &at
		},
		"a full pool beside one with room": func(s *survey.Snapshot) {
			s.Config.Addresses.Pools[0].Ranges = ranges("10.0.200.1")
			s.Config.Addresses.Pools = append(s.Config.Addresses.Pools, config.AddressPool{Pool: addresses.Pool{Name: "more", Ranges: ranges("10.0.201.0/28")}, Mover: addresses.Layer2})
		},
		"policy Local, and no pods": func(s *survey.Snapshot) {
			ledgerAs(`"name":"edge"}`, `"name":"edge","local":true,"check":30123}`, time.Hour)(s)
			for _, node := range []int{0, 2} {
				reports(node, time.Hour, func(r *addresses.Report) {
					r.Silent = []addresses.Endpoint{{Node: nameOf(1), Port: 30123}}
				})(s)
			}
		},
		"policy Local, and no pods yet": func(s *survey.Snapshot) {
			ledgerAs(`"name":"edge"}`, `"name":"edge","local":true,"check":30123}`, time.Hour)(s)
			ledgerAs(`"node":"worker-1","epoch":2,`, "", time.Hour)(s)
			reports(1, time.Hour, func(r *addresses.Report) { r.Held = r.Held[1:] })(s)
		},
		"a segment that no Node names, in use": func(s *survey.Snapshot) { s.Nodes[1].Status.Addresses = s.Nodes[1].Status.Addresses[:1] },
	} {
		for _, s := range []shape{{metal: true}, {dual: true, metal: true}, {}} {
			t.Run(name+" "+s.String(), func(t *testing.T) {
				snap := healthy(t, s)
				addressed(snap)
				seed(snap)
				for _, f := range Examine(snap) {
					t.Errorf("%+v", f)
				}
			})
		}
	}
}

func refusal(reason addresses.ProblemReason) []addresses.Problem {
	return []addresses.Problem{{Address: edge(), Reason: reason}}
}

// The pool that a namespace may use can be full while those of other namespaces are not.
func TestRoomOfPoolsByNamespace(t *testing.T) {
	snap := healthy(t, shape{metal: true})
	addressed(snap)
	snap.Config.Addresses.Pools[0].Ranges = ranges("10.0.200.1")
	snap.Config.Addresses.Pools[0].Namespaces = labels.SelectorFromSet(labels.Set{"team": "web"})
	snap.Config.Addresses.Pools = append(snap.Config.Addresses.Pools, config.AddressPool{Pool: addresses.Pool{Name: "more", Ranges: ranges("10.0.201.0/28")}, Mover: addresses.Layer2})
	if found := Examine(snap); len(found) != 1 || found[0].Check != "address-pool-room" || found[0].Object != "pool/segment" {
		t.Errorf("%+v", found)
	}
}
