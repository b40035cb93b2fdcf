package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Owner is the Service of a cluster that a load balancer belongs to, or the group of Services that
// share it: exactly one of UID and Group is set.
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

// ServiceLabel is the key that names the Service. The UID is in the key, not in the value, so that
// a load balancer can carry more than one, and a selector finds it by the key alone.
func (o Owner) ServiceLabel() string { return labelServicePrefix + o.UID }

// Labels are what a load balancer of this owner carries. Those of a group's Services and ports come
// from its [Spec].
func (o Owner) Labels() map[string]string {
	if o.Group != "" {
		return map[string]string{LabelCluster: o.Cluster, LabelShared: o.Group}
	}
	return map[string]string{LabelCluster: o.Cluster, o.ServiceLabel(): ""}
}

// Owns reports whether these labels make a load balancer this owner's. One that is shared belongs
// to the group, and to no Service of it alone, also while it lacks the label that names the group.
func (o Owner) Owns(labels map[string]string) bool {
	group, shared := labels[LabelShared]
	_, service := labels[o.ServiceLabel()]
	mine := service && !shared && !hasPorts(labels)
	if o.Group != "" {
		mine = group == o.Group
	}
	return mine && labels[LabelCluster] == o.Cluster
}

// Find returns the load balancers of an owner. Members are the UIDs of a group's Services: one that
// lost the label of the group is still theirs.
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

// Carries reports whether these labels name the Service, alone or among those that share.
func (o Owner) Carries(labels map[string]string) bool {
	_, service := labels[o.ServiceLabel()]
	return service && labels[LabelCluster] == o.Cluster
}

// Selector finds, as a label selector, what [Owner.Owns] is true of.
func (o Owner) Selector() string {
	if o.Group != "" {
		return fmt.Sprintf("%s=%s,%s=%s", LabelCluster, o.Cluster, LabelShared, o.Group)
	}
	return fmt.Sprintf("%s,!%s", o.Carrier(), LabelShared)
}

// Carrier finds what [Owner.Carries] is true of.
func (o Owner) Carrier() string {
	return fmt.Sprintf("%s=%s,%s", LabelCluster, o.Cluster, o.ServiceLabel())
}

// Key names the owner within the cluster.
func (o Owner) Key() string {
	if o.Group != "" {
		return LabelShared + "=" + o.Group
	}
	return o.UID
}

// State is a load balancer as it is. The zero State means that there is none.
type State struct {
	ID     int64
	Name   string
	Labels map[string]string
	Type   string
	// Created is for people.
	Created time.Time

	Location    string
	NetworkZone string // the location's

	Algorithm Algorithm
	Public    bool
	IPv4      netip.Addr // invalid: none
	IPv6      netip.Addr
	Network   int64 // 0: not attached
	PrivateIP netip.Addr
	// PrimaryIPv4 and PrimaryIPv6 are the IDs of the primary IPs that the public addresses are; 0:
	// unknown.
	PrimaryIPv4, PrimaryIPv6 int64
	ReverseDNS

	Listeners []Listener
	Targets   []Target
	// OtherTargets counts what label selectors find. We did not add them and cannot judge them, so
	// they stay; they take room all the same.
	OtherTargets int
	CheckResults
}

// CheckResults are the results of health checks, by the listener's port and the target, without
// OtherTargets.
type CheckResults struct {
	Verdicts map[int]map[Target]Verdict
	// Why are the causes of targets that are unhealthy, where the cloud reports them.
	Why map[int]map[Target]Cause
}

// Verdict is what the checks of one listener say of a target.
type Verdict int

// The verdicts.
const (
	Unknown Verdict = iota // not yet judged
	Healthy
	Unhealthy
)

// String is the API's word.
func (v Verdict) String() string {
	return [...]string{Unknown: "unknown", Healthy: "healthy", Unhealthy: "unhealthy"}[v]
}

// Health counts targets by what the checks of one listener say of them.
type Health struct{ Healthy, Unhealthy, Unknown int }

// Health is that of the targets as the listener of a port sees them.
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

// Unserved returns the listeners that find no target healthy, judged or not. A listener that says
// nothing of any target is not among them, and nobody knows of targets that others added.
func (s State) Unserved() (listeners []Listener) {
	for _, l := range s.Listeners {
		if h := s.Health(l.Port); h != (Health{}) && h.Healthy == 0 && s.OtherTargets == 0 {
			listeners = append(listeners, l)
		}
	}
	return listeners
}

// NoHealthyTarget is the note about a listener that has found no target healthy for the time of a
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

// SaidUnserved reports whether a text, such as a condition's message, says that the listener has no
// healthy target.
func (l Listener) SaidUnserved(text string) bool { return strings.Contains(text, l.withoutHealthy()) }

func (l Listener) withoutHealthy() string {
	return fmt.Sprintf("port %d: no target is healthy", l.Port)
}

// HealthyAt are the ports of the listeners that find a target healthy, sorted.
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

// Exists reports whether the cloud has this load balancer.
func (s State) Exists() bool { return s.ID != 0 }

// Services are the UIDs of the Services whose labels the load balancer carries, sorted.
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
