package connectivity

import (
	"net/netip"
	"slices"
)

// Port is the TCP and UDP port of a probe.
const Port = 8080

// Path is a kind of connection.
type Path string

// The paths. Each depends on earlier ones.
const (
	// Pod is from pod to pod, by the pods' own addresses.
	Pod Path = "pod"
	// Service is from a pod to a ClusterIP.
	Service Path = "service"
	// NodePort is from a pod to a node port at a node's address.
	NodePort Path = "node-port"
	// HealthCheck is from a pod to a node's port for health checks of load balancers.
	HealthCheck Path = "health-check"
	// Outside is from a pod to an address that the user passed.
	Outside Path = "outside"
)

// Kind is the kind of a trial.
type Kind string

const (
	// TCP connects and reads the server's name.
	TCP Kind = "tcp"
	// UDP sends a datagram and reads the server's name.
	UDP Kind = "udp"
	// MTU sends datagrams that must not be fragmented, of up to the MTU of the pod's interface.
	MTU Kind = "mtu"
	// HTTP expects status 200.
	HTTP Kind = "http"
	// Dial only connects.
	Dial Kind = "dial"
)

// Trial is a single test of a connection.
type Trial struct {
	Path Path   `json:"path"`
	Kind Kind   `json:"kind"`
	From string `json:"from"` // node of the client pod
	// To is the target node, empty for a ClusterIP and the outside.
	To string         `json:"to,omitempty"`
	At netip.AddrPort `json:"at"`
}

// Family returns 4 or 6.
func (t Trial) Family() int {
	if t.At.Addr().Is4() {
		return 4
	}
	return 6
}

// Node is a node with a listening probe.
type Node struct {
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses,omitempty"` // where node ports are open
	Pods      []netip.Addr `json:"pods,omitempty"`      // the probe's addresses
}

// World is the set of targets, from which each client derives its plan, ten times as long.
type World struct {
	Nodes      []Node           `json:"nodes,omitempty"`
	ClusterIPs []netip.Addr     `json:"clusterIPs,omitempty"`
	NodePort   uint16           `json:"nodePort,omitempty"`   // 0: none
	HealthPort uint16           `json:"healthPort,omitempty"` // 0: none
	Targets    []netip.AddrPort `json:"targets,omitempty"`
}

// Plan returns the trials of a node's pod. Service, NodePort and HealthCheck are only tried in
// families of the Service.
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
