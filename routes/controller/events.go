package controller

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/underlay-ccm/underlay/routes"
)

// Reasons of Events about the table as a whole.
const (
	eventDeletionsCapped = "RouteDeletionsCapped"
	eventNearlyFull      = "RouteTableNearlyFull"
	eventUnreadable      = "RouteTableUnreadable"
	eventUnrecorded      = "RoutesNotRecorded"
)

// tableEvents sends Events about the table as a whole, once when a problem begins. The table
// is no Kubernetes object, so the Events are about the leader election lease.
type tableEvents struct {
	recorder record.EventRecorder
	reported map[string]map[string]bool // by reason, then by subject
}

func newTableEvents(recorder record.EventRecorder) *tableEvents {
	return &tableEvents{recorder: recorder, reported: map[string]map[string]bool{}}
}

// report takes all current problems of a reason, by subject. It reports those that are new.
func (e *tableEvents) report(reason string, now map[string]string) {
	reported := make(map[string]bool, len(now))
	for _, about := range slices.Sorted(maps.Keys(now)) {
		reported[about] = true
		if !e.reported[reason][about] {
			lease := &corev1.ObjectReference{
				APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "kube-system",
				Name: "cloud-controller-manager",
			}
			e.recorder.Event(lease, corev1.EventTypeWarning, reason, now[about])
		}
	}
	e.reported[reason] = reported
}

// only returns the messages of a reason with a single possible problem.
func only(wrong bool, message string) map[string]string {
	if !wrong {
		return nil
	}
	return map[string]string{"": message}
}

// unreadable reports that no decision is possible; nil ends the problem.
func (e *tableEvents) unreadable(err error) {
	e.report(eventUnreadable, only(err != nil, fmt.Sprintf(
		"nothing is deleted or replaced, and new Nodes may not be routed, until this works again: %v; check that the network is there and that the token is valid", err)))
}

// unrecorded reports that routes can't be recorded; nil ends the problem.
func (e *tableEvents) unrecorded(err error) {
	e.report(eventUnrecorded, only(err != nil, fmt.Sprintf(
		"routes are added all the same, and the next leader will not know that they are this cluster's to delete: %v; apply deploy/ccm/rbac.yaml again, or check the ConfigMap", err)))
}

func (e *tableEvents) decided(d decision) {
	ambiguous := map[string]string{}
	for _, r := range d.Ownership.Ambiguous {
		ambiguous[r.String()] = fmt.Sprintf(
			"route %s is in this cluster's pod range, and this cluster neither wrote nor adopted it; it is kept: remove it if nothing uses it, and give each cluster on the network a pod range of its own", r)
	}
	e.report(routes.EventRouteAmbiguous, ambiguous)
	shortage, _, short := d.Shortage()
	e.report(eventNearlyFull, only(short, shortage.String()))
}

func (e *tableEvents) capped(postponed int, percent int) {
	e.report(eventDeletionsCapped, only(postponed > 0, fmt.Sprintf(
		"%d stale routes are deleted later: at most %d%% of this cluster's routes are deleted per period (routes.maxDeletions), so that a mistake takes time to do harm", postponed, percent)))
}
