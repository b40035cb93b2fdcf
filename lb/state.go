package lb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Owner is the Service of a cluster that a load balancer belongs to.
type Owner struct {
	Cluster string
	UID     string
}

// Labels that mark ownership in the cloud.
const (
	LabelCluster       = "underlay.dev/cluster"
	labelServicePrefix = "underlay.dev/svc-"
)

// ServiceLabel is the key that names the Service. The UID is in the key, not in the value, so that a
// load balancer can carry more than one, and a selector finds it by the key alone.
func (o Owner) ServiceLabel() string { return labelServicePrefix + o.UID }

// Labels are what a load balancer of this owner carries.
func (o Owner) Labels() map[string]string {
	return map[string]string{LabelCluster: o.Cluster, o.ServiceLabel(): ""}
}

// Owns reports whether these labels make a load balancer this owner's.
func (o Owner) Owns(labels map[string]string) bool {
	_, service := labels[o.ServiceLabel()]
	return service && labels[LabelCluster] == o.Cluster
}

// State is a load balancer as it is. The zero State means that there is none.
type State struct {
	ID     int64
	Name   string
	Labels map[string]string
	Type   string

	Location    string
	NetworkZone string // the location's

	Algorithm Algorithm
	Public    bool
	IPv4      netip.Addr // invalid: none
	IPv6      netip.Addr
	Network   int64 // 0: not attached
	PrivateIP netip.Addr

	Listeners []Listener
	Targets   []Target
	// OtherTargets counts label selectors and addresses of dedicated servers. We did not add them and
	// cannot judge them, so they stay; they take room all the same.
	OtherTargets int
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

// labelsWith is the whole label set after the owner's labels are put into it. The cloud replaces the set
// as a whole, and labels of others are not ours to drop.
func (s State) labelsWith(o Owner) map[string]string {
	merged := maps.Clone(s.Labels)
	if merged == nil {
		merged = make(map[string]string)
	}
	maps.Copy(merged, o.Labels())
	return merged
}

// Backend is the cloud, as the controller needs it.
type Backend interface {
	// Observe finds the owner's load balancer by its labels; the zero State when there is none.
	// More than one is an error that wraps ErrAmbiguous.
	Observe(ctx context.Context, owner Owner) (State, error)
	// List finds all load balancers of a cluster, in as few requests as the cloud allows.
	List(ctx context.Context, cluster string) ([]State, error)
	// Apply does one thing to the load balancer that was observed, and returns when it is done.
	// Create finds out by itself whether an earlier Create got through after all. That something is gone
	// which was observed is no refusal but an ordinary error: whoever looks again does better.
	Apply(ctx context.Context, have State, op Op) error
}

// Errors of a Backend that only a person can mend. Their texts are stable from one attempt to the next.
var (
	// ErrNotOwned: the name is taken by a load balancer without our labels.
	ErrNotOwned = errors.New("belongs to somebody else")
	// ErrAmbiguous: more than one load balancer carries the labels of one Service.
	ErrAmbiguous = errors.New("more than one load balancer carries the labels of this Service: remove the underlay.dev labels from the copies")
	// ErrProtected: the load balancer is protected against deletion.
	ErrProtected = errors.New("is protected against deletion: remove the protection in the cloud, or keep it by removing its underlay.dev labels")
)

// RejectedError is a request that the cloud understood and refused. The same request will be refused again
// until something else changes.
type RejectedError struct {
	Code    string // the API's error code
	Message string
	// Target is true when the cloud found fault with a target, not with the load balancer.
	Target bool
}

func (e *RejectedError) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }
