package connectivity

import (
	"net/netip"
	"slices"
)

// Port is where a probe listens, over TCP and UDP.
const Port = 8080

// Path is the way that a packet takes.
type Path string

// The paths, in the order in which one builds on another.
const (
	// Pod is from pod to pod, by the pods' own addresses.
	Pod Path = "pod"
	// Service is from a pod to a ClusterIP.
	Service Path = "service"
	// NodePort is from a pod to a port of a node's address.
	NodePort Path = "node-port"
	// HealthCheck is from a pod to a node's port for health checks of load balancers.
	HealthCheck Path = "health-check"
	// Outside is from a pod to an address that the user named.
	Outside Path = "outside"
	// LoadBalancer is from outside of the cluster to a Service's address in its status.
	LoadBalancer Path = "load-balancer"
)

// Kind is what is sent.
type Kind string

// The kinds of trials.
const (
	// TCP opens a connection and reads who answers.
	TCP Kind = "tcp"
	// UDP sends datagrams and counts the answers.
	UDP Kind = "udp"
	// MTU sends datagrams that may not be fragmented, as large as the pod's interface takes.
	MTU Kind = "mtu"
	// HTTP expects status 200.
	HTTP Kind = "http"
	// Dial opens a connection and expects nothing more.
	Dial Kind = "dial"
)

// Trial is one thing to try.
type Trial struct {
	Path Path           `json:"path"`
	Kind Kind           `json:"kind"`
	From string         `json:"from"`         // the node of the pod that asks, or Here
	To   string         `json:"to,omitempty"` // the node, or NAMESPACE/NAME of the load balancer's Service, that is asked; none for a ClusterIP and the outside
	At   netip.AddrPort `json:"at"`
}

// Family is 4 or 6.
func (t Trial) Family() int {
	if t.At.Addr().Is4() {
		return 4
	}
	return 6
}

// Node is a node with a probe that listens.
type Node struct {
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses,omitempty"` // its internal addresses
	Pods      []netip.Addr `json:"pods,omitempty"`      // those of the probe
}

// World is what can be asked. Who asks is told of it, and makes the plan: a plan is ten times as
// long.
type World struct {
	Nodes      []Node           `json:"nodes,omitempty"`
	ClusterIPs []netip.Addr     `json:"clusterIPs,omitempty"`
	NodePort   uint16           `json:"nodePort,omitempty"`   // 0: none
	HealthPort uint16           `json:"healthPort,omitempty"` // 0: none
	Targets    []netip.AddrPort `json:"targets,omitempty"`
}

// Plan is what the pod on a node tries, in the order of the paths. Service, node
// ports and health checks are tried in families that the Service has.
func Plan(from string, w World) []Trial {
	var all []Trial
	add := func(path Path, to string, at netip.AddrPort, kinds ...Kind) {
		for _, kind := range kinds {
			all = append(all, Trial{Path: path, Kind: kind, From: from, To: to, At: at})
		}
	}
	for _, n := range w.Nodes {
		for _, a := range n.Pods {
			add(Pod, n.Name, netip.AddrPortFrom(a, Port), TCP, UDP, MTU)
		}
	}
	for _, a := range w.ClusterIPs {
		add(Service, "", netip.AddrPortFrom(a, Port), TCP, UDP)
	}
	for _, n := range w.Nodes {
		for _, a := range n.Addresses {
			if !slices.ContainsFunc(w.ClusterIPs, func(s netip.Addr) bool { return s.Is4() == a.Is4() }) {
				continue
			}
			if w.NodePort != 0 {
				add(NodePort, n.Name, netip.AddrPortFrom(a, w.NodePort), TCP)
			}
			if w.HealthPort != 0 {
				add(HealthCheck, n.Name, netip.AddrPortFrom(a, w.HealthPort), HTTP)
			}
		}
	}
	for _, t := range w.Targets {
		add(Outside, "", t, Dial)
	}
	return all
}
