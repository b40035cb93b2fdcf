package lb

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Algorithm is how a load balancer chooses among healthy targets.
type Algorithm string

// The cloud's algorithms.
const (
	RoundRobin       Algorithm = "round_robin"
	LeastConnections Algorithm = "least_connections"
)

// Spec is a load balancer as it should be: every value resolved, nothing left to default.
type Spec struct {
	Owner Owner
	Name  string
	Type  string

	// Exactly one of Location and NetworkZone is set. They matter at creation; see [Immovable].
	Location    string
	NetworkZone string

	Algorithm Algorithm
	// Public says whether the load balancer has its public interface.
	Public bool
	// Network is the network it is attached to. 0: no opinion, an attachment made by others stays.
	Network int64
	// UsePrivateIP makes targets be reached at their address in Network.
	UsePrivateIP bool

	Listeners []Listener // sorted by port
	Targets   []Target   // sorted by server

	// NodeSelector is a label selector in Kubernetes' syntax; empty selects every node.
	NodeSelector string
	Publish      Publish
	// Unserved are the Service's ports that no listener stands for.
	Unserved []Port
	// Served are the Service's ports that have one.
	Served []Port
}

// Publish says what the Service's status shows.
type Publish struct {
	Hostname string // instead of addresses
	IPv6     bool
	Private  bool // also the address in the network
	Proxy    bool // clients inside the cluster must go through the load balancer
}

// Listener is a port of the load balancer ("service" in the cloud's API) and where it leads.
type Listener struct {
	Port            int
	DestinationPort int
	Protocol        string // always ProtocolTCP in a Spec
	ProxyProtocol   bool
	Check           HealthCheck
}

// Protocols of listeners and health checks.
const (
	ProtocolTCP  = "tcp"
	ProtocolHTTP = "http"
)

// DefaultStatusCodes are the answers that an HTTP health check takes as healthy, comma-separated.
const DefaultStatusCodes = "2??,3??"

// HealthCheck is how a listener judges its targets. All fields below Retries are empty with protocol tcp.
type HealthCheck struct {
	Protocol string
	Port     int
	Interval time.Duration // whole seconds, 3–60
	Timeout  time.Duration // whole seconds, 1–60
	Retries  int           // 1–5

	Path        string
	StatusCodes string // comma-separated
	// No Spec sets the rest. They are here so that a change made by hand is a difference.
	Domain   string
	Response string
	TLS      bool
}

func (h HealthCheck) String() string {
	return fmt.Sprintf("%s :%d%s every %s, timeout %s, %d tries", h.Protocol, h.Port, h.Path, h.Interval, h.Timeout, h.Retries)
}

// Target is a cloud server that receives traffic.
type Target struct {
	Server  int64
	Private bool // reached at its address in the load balancer's network
}

func (t Target) String() string {
	if t.Private {
		return fmt.Sprintf("server %d (private)", t.Server)
	}
	return fmt.Sprintf("server %d", t.Server)
}

// WithTargets returns the spec with these servers as its targets, in order, each once.
func (s Spec) WithTargets(servers []int64) Spec {
	servers = slices.Compact(slices.Sorted(slices.Values(servers)))
	s.Targets = make([]Target, len(servers))
	for i, id := range servers {
		s.Targets[i] = Target{Server: id, Private: s.UsePrivateIP}
	}
	return s
}

// Limits of a load balancer type.
type Limits struct{ Listeners, Targets int }

// LimitsOf returns what a load balancer type holds, and false for a type that this version does not know.
func LimitsOf(typ string) (Limits, bool) {
	switch typ {
	case "lb11":
		return Limits{Listeners: 5, Targets: 25}, true
	case "lb21":
		return Limits{Listeners: 15, Targets: 75}, true
	case "lb31":
		return Limits{Listeners: 30, Targets: 150}, true
	}
	return Limits{}, false
}

// Fit trims the targets to what the type holds. Targets that the load balancer has already stay before
// new ones come, so that a cluster too large for its type does not shuffle its targets with every change.
func (s Spec) Fit(have State) (Spec, []Note) {
	limits, known := LimitsOf(s.Type)
	room := max(limits.Targets-have.OtherTargets, 0)
	if !known || len(s.Targets) <= room {
		return s, nil
	}
	present := make(map[int64]bool, len(have.Targets))
	for _, t := range have.Targets {
		present[t.Server] = true
	}
	s.Targets = slices.Clone(s.Targets)
	slices.SortStableFunc(s.Targets, func(a, b Target) int {
		if present[a.Server] != present[b.Server] {
			if present[a.Server] {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Server, b.Server)
	})
	s.Targets = s.Targets[:room]
	slices.SortFunc(s.Targets, func(a, b Target) int { return cmp.Compare(a.Server, b.Server) })
	return s, []Note{{
		Grade: Error, Reason: ReasonTargetsTruncated, Field: AnnotationType, Value: s.Type,
		// How many nodes there are is left out: it changes, and the cause does not.
		Text: fmt.Sprintf("only %d nodes are targets, the type holds no more: choose a larger type, or fewer nodes with %s", room, AnnotationNodeSelector),
	}}
}

// Retarget returns the load balancer as it is, but for its targets: they become these servers. It is for a
// Service that says nothing usable: how a server is reached is read off the targets that are there.
func Retarget(have State, servers []int64) (gone, added []Op, notes []Note) {
	present := make(map[int64]Target, len(have.Targets))
	private := !have.Public
	for _, t := range have.Targets {
		present[t.Server] = t
		private = private || t.Private
	}
	want, notes := Spec{Type: have.Type, UsePrivateIP: private}.WithTargets(servers).Fit(have)
	for i, t := range want.Targets {
		if old, ok := present[t.Server]; ok {
			want.Targets[i] = old
		}
	}
	gone, added = diffTargets(want.Targets, have.Targets)
	return gone, added, notes
}
