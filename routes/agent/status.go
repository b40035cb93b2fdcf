package agent

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// PeersReachable is the Node condition that is True while the agent has routes to all Nodes.
const PeersReachable corev1.NodeConditionType = "underlay.dev/PeersReachable"

// Reasons of the conditions, and of the Events about the condition PeersReachable.
const (
	reasonRouteCreated   = "RouteCreated"
	reasonNoRouteCreated = "NoRouteCreated"
	reasonAllReachable   = "AllPeersReachable"
	reasonUnreachable    = "PeersUnreachable"
	reasonNotReady       = "NetworkNotReady"
)

// ReasonAtRisk is a reason of the condition PeersReachable and of an Event: the node works,
// and its agent warns of a problem that it can't fix.
const ReasonAtRisk = "NetworkAtRisk"

// rewording limits how long a condition's message may be outdated while its status is right: a
// thousand nodes that lose the same ten peers in succession must not write ten thousand times.
const rewording = time.Minute

type outcome struct {
	uid         types.UID // of the Node; a later Node of its name has no result yet
	ready       error
	hasPodCIDRs bool
	peers       []Peer
	warnings    []string
	wireGuard   *kube.WireGuard // to be written; nil: nothing
	// unconnected means that tunnels are required and have not shaken hands yet.
	unconnected bool
}

// status writes the Node's conditions, separately from passes, which don't need the API server.
type status struct {
	Config
	queue  workqueue.TypedRateLimitingInterface[struct{}]
	newest *kube.Newest[*corev1.Node]

	latest atomic.Pointer[outcome]

	lastSent map[corev1.NodeConditionType]time.Time // when last written; used by the worker
}

func newStatus(cfg Config) *status {
	return &status{
		Config: cfg,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[struct{}](time.Second, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[struct{}]{Name: "agent_status"}),
		newest:   kube.NewNewest[*corev1.Node](),
		lastSent: map[corev1.NodeConditionType]time.Time{},
	}
}

func (s *status) tell(o outcome) {
	s.latest.Store(&o)
	s.queue.Add(struct{}{})
}

func (s *status) run(ctx context.Context) {
	kube.Work(ctx, s.queue, "Node's conditions not written; trying again",
		func(ctx context.Context, _ struct{}) error {
			return s.write(ctx, time.Now())
		})
}

func (s *status) write(ctx context.Context, now time.Time) error {
	o, cached := *s.latest.Load(), s.Nodes.Own()
	if cached == nil || cached.UID != o.uid {
		return nil
	}
	node := s.newest.Of(cached)
	if err := s.writeWireGuard(ctx, node, o.wireGuard); err != nil {
		return err
	}
	var wanted []corev1.NodeCondition
	// The cloud controller manager sets it for families that are routed by the cloud.
	if !s.Modes.Any(routes.ByCloud) {
		if c, ok := networkUnavailable(o, kube.Condition(node, corev1.NodeNetworkUnavailable)); ok {
			wanted = append(wanted, c)
		}
	}
	if o.hasPodCIDRs {
		wanted = append(wanted, peersReachable(o))
	}
	for _, c := range wanted {
		old := kube.Condition(node, c.Type)
		known := old != nil && old.Status == c.Status && old.Reason == c.Reason
		if known && (old.Message == c.Message || c.Type == corev1.NodeNetworkUnavailable) {
			continue
		}
		if wait := s.lastSent[c.Type].Add(rewording).Sub(now); known && wait > 0 {
			s.queue.AddAfter(struct{}{}, wait)
			continue
		}
		patched, err := kube.SetCondition(ctx, s.Client, node, c, now)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		s.newest.Wrote(patched)
		node, s.lastSent[c.Type] = patched, now
		if c.Type == PeersReachable && c.Reason != reasonAllReachable {
			reason := c.Reason
			if o.ready != nil { // also if peers are unreachable, which is the condition's reason then
				reason = reasonNotReady
			}
			s.Recorder.Event(node, corev1.EventTypeWarning, reason, c.Message)
		}
	}
	return nil
}

// networkUnavailable returns the condition to write, if any. It is withdrawn once the node's
// network was ready, and not set again: later failures are being repaired, and running pods
// remain reachable by the existing routes.
func networkUnavailable(o outcome, old *corev1.NodeCondition) (corev1.NodeCondition, bool) {
	if old != nil && old.Status == corev1.ConditionFalse {
		return corev1.NodeCondition{}, false
	}
	c := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue}
	switch {
	case o.ready != nil:
		c.Reason, c.Message = reasonNoRouteCreated, o.ready.Error()
	case o.unconnected:
		c.Reason, c.Message = string(routes.NoTunnel), "waiting for WireGuard tunnels to all Ready nodes"
	default:
		c.Status, c.Reason = corev1.ConditionFalse, reasonRouteCreated
		c.Message = "routes to all reachable nodes stand on this node"
	}
	return c, true
}

const namedPeers = 10

// peersReachable also reports what keeps the node's network from being ready: if the cloud
// controller manager sets NetworkUnavailable, no other condition does.
func peersReachable(o outcome) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: PeersReachable, Status: corev1.ConditionTrue, Reason: reasonAllReachable,
	}
	var message []string
	if o.ready != nil {
		c.Status, c.Reason = corev1.ConditionFalse, reasonNotReady
		message = append(message, "this node's network is not ready: "+
			strings.ReplaceAll(o.ready.Error(), "\n", "; "))
	}
	if len(o.peers) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, reasonUnreachable
		message = append(message, fmt.Sprintf("pods of %d nodes can't be reached from this node: %s",
			len(o.peers), named(o.peers)))
	}
	if len(o.warnings) > 0 {
		if c.Reason == reasonAllReachable {
			c.Reason = ReasonAtRisk
		}
		message = append(message, "warning: "+strings.Join(o.warnings, "; "))
	}
	c.Message = cmp.Or(strings.Join(message, "; "),
		"this node has a route to the pods of every other node that has any")
	return c
}

// named lists peers in a message, at most namedPeers individually.
func named(peers []Peer) string {
	var lines []string
	for _, p := range peers[:min(namedPeers, len(peers))] {
		lines = append(lines, p.Node+": "+p.Problem)
	}
	if more := len(peers) - namedPeers; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}
