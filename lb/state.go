package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Owner is the Service that owns a load balancer, or the group of Services that share it: exactly
// one of UID and Group is set.
type Owner struct {
	Cluster string
	UID     string
	Group   string
}

// Labels that mark ownership in the cloud.
const (
	LabelCluster       = "underlay.dev/cluster"
	labelServicePrefix = "underlay.dev/svc-"
)

// ServiceLabel returns the label's key, which contains the UID: so a load balancer can have the
// labels of several Services, and a selector by key finds it.
func (o Owner) ServiceLabel() string { return labelServicePrefix + o.UID }

// Labels returns the owner's labels. A group's [Spec] adds those of its Services and ports.
func (o Owner) Labels() map[string]string {
	if o.Group != "" {
		return map[string]string{LabelCluster: o.Cluster, LabelShared: o.Group}
	}
	return map[string]string{LabelCluster: o.Cluster, o.ServiceLabel(): ""}
}

// Owns reports whether a load balancer with these labels belongs to the owner. A shared load
// balancer belongs to the group and never to a Service alone, even without the group's label.
func (o Owner) Owns(labels map[string]string) bool {
	group, shared := labels[LabelShared]
	_, service := labels[o.ServiceLabel()]
	mine := service && !shared && !hasPorts(labels)
	if o.Group != "" {
		mine = group == o.Group
	}
	return mine && labels[LabelCluster] == o.Cluster
}

// Find returns the load balancers of an owner. Members are the UIDs of a group's Services: a load
// balancer that lost the group's label is found by its Services and ports.
func (o Owner) Find(states []State, members []string) (found []State) {
	for _, s := range states {
		_, shared := s.Labels[LabelShared]
		lost := o.Group != "" && !shared && s.Labels[LabelCluster] == o.Cluster && hasPorts(s.Labels) &&
			slices.ContainsFunc(s.Services(), func(uid string) bool { return slices.Contains(members, uid) })
		if o.Owns(s.Labels) || lost {
			found = append(found, s)
		}
	}
	return found
}

func hasPorts(labels map[string]string) bool {
	for label := range labels {
		if strings.HasPrefix(label, labelPortPrefix) {
			return true
		}
	}
	return false
}

// Carries reports whether the labels include the Service's, of a shared load balancer or its own.
func (o Owner) Carries(labels map[string]string) bool {
	_, service := labels[o.ServiceLabel()]
	return service && labels[LabelCluster] == o.Cluster
}

// Selector returns a label selector for which [Owner.Owns] is true.
func (o Owner) Selector() string {
	if o.Group != "" {
		return fmt.Sprintf("%s=%s,%s=%s", LabelCluster, o.Cluster, LabelShared, o.Group)
	}
	return fmt.Sprintf("%s,!%s", o.Carrier(), LabelShared)
}

// Carrier returns a label selector for which [Owner.Carries] is true.
func (o Owner) Carrier() string {
	return fmt.Sprintf("%s=%s,%s", LabelCluster, o.Cluster, o.ServiceLabel())
}

// Key identifies the owner within the cluster.
func (o Owner) Key() string {
	if o.Group != "" {
		return LabelShared + "=" + o.Group
	}
	return o.UID
}

// State is an existing load balancer. The zero State means that it does not exist.
type State struct {
	ID     int64
	Name   string
	Labels map[string]string
	Type   string
	// Created is shown to users.
	Created time.Time

	Location    string
	NetworkZone string // of Location

	Algorithm Algorithm
	Public    bool
	IPv4      netip.Addr // invalid: none
	IPv6      netip.Addr
	Network   int64 // 0: not attached
	PrivateIP netip.Addr
	// PrimaryIPv4 and PrimaryIPv6 are the IDs of the addresses' primary IPs; 0: unknown.
	PrimaryIPv4, PrimaryIPv6 int64
	ReverseDNS

	Listeners []Listener
	Targets   []Target
	// OtherTargets counts targets by label selectors. This controller never adds or removes them
	// and has no health of them, but they take room.
	OtherTargets int
	CheckResults
}

// CheckResults are the results of health checks by listener port and target, without OtherTargets.
type CheckResults struct {
	Verdicts map[int]map[Target]Verdict
	// Why are the causes of unhealthy targets, if the cloud reports them.
	Why map[int]map[Target]Cause
}

// Verdict is the result of a listener's health checks of a target.
type Verdict int

const (
	Unknown Verdict = iota // not checked yet
	Healthy
	Unhealthy
)

// String returns the API's name.
func (v Verdict) String() string {
	return [...]string{Unknown: "unknown", Healthy: "healthy", Unhealthy: "unhealthy"}[v]
}

// Health counts targets by verdict.
type Health struct{ Healthy, Unhealthy, Unknown int }

// Health counts the targets of a port's listener by verdict.
func (s State) Health(port int) Health {
	var h Health
	for _, v := range s.Verdicts[port] {
		switch v {
		case Healthy:
			h.Healthy++
		case Unhealthy:
			h.Unhealthy++
		default:
			h.Unknown++
		}
	}
	return h
}

// Unserved returns the listeners without a healthy target, except for those without any verdict.
// The result is empty with OtherTargets, which may be healthy.
func (s State) Unserved() (listeners []Listener) {
	for _, l := range s.Listeners {
		if h := s.Health(l.Port); h != (Health{}) && h.Healthy == 0 && s.OtherTargets == 0 {
			listeners = append(listeners, l)
		}
	}
	return listeners
}

// NoHealthyTarget returns the note about a listener without a healthy target for the time of a
// verdict. idle: the Service has no endpoint that could be healthy.
func (s State) NoHealthyTarget(l Listener, idle bool) Note {
	note := Note{
		Grade: Error, Reason: ReasonNoHealthyTarget, Figures: s.Causes(l.Port),
		Text: fmt.Sprintf("%s by its check (%s): let the load balancer reach that port on the nodes, and the pods of the Service be ready", l.withoutHealthy(), l.Check),
	}
	if slices.ContainsFunc(s.Targets, Target.Pod) {
		note.Text = fmt.Sprintf("%s by its check (%s): let the pods listen on that port on IPv6, and filters let the load balancer reach it; if it connects from another address than its own public one, name that in loadBalancers.podTargetSources", l.withoutHealthy(), l.Check)
	}
	if idle {
		note.Grade, note.Text = Warning, l.withoutHealthy()+", because the Service has no ready endpoint"
	}
	return note
}

// ReportsUnserved reports whether a text, such as a condition's message, contains the listener's
// NoHealthyTarget note.
func (l Listener) ReportsUnserved(text string) bool {
	return strings.Contains(text, l.withoutHealthy())
}

func (l Listener) withoutHealthy() string {
	return fmt.Sprintf("port %d: no target is healthy", l.Port)
}

// HealthyAt returns the ports of the listeners that find a target healthy, sorted.
func (s State) HealthyAt(t Target) []int {
	var ports []int
	for port, verdicts := range s.Verdicts {
		if verdicts[t] == Healthy {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return ports
}

// Exists reports whether the load balancer exists in the cloud.
func (s State) Exists() bool { return s.ID != 0 }

// Services returns the UIDs of the Services with a label on the load balancer, sorted.
func (s State) Services() []string {
	var uids []string
	for label := range s.Labels {
		if uid, ok := strings.CutPrefix(label, labelServicePrefix); ok {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}
