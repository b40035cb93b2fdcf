package vswitch

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/promauto"
)

// nodeMetrics counts the Nodes that the vSwitch doesn't reach.
type nodeMetrics struct{ unreached *metrics.GaugeVec }

func newNodeMetrics(r promauto.Registry) (*nodeMetrics, error) {
	f := promauto.With(r, "vswitch")
	return &nodeMetrics{f.GaugeVec("unreached_nodes",
		"Number of Nodes of dedicated servers that the vSwitch doesn't reach as far as Robot knows, by cause: failed (configuring the server's port has failed), missing (the server is no member). The condition underlay.dev/VSwitchMember of each says so.",
		"cause")}, f.Err()
}

// show counts by the Nodes' conditions, also of earlier processes: while Robot is unavailable,
// they are the only source.
func (m *nodeMetrics) show(nodes []*corev1.Node) {
	reported := map[string]int{}
	for _, n := range nodes {
		if c := kube.Condition(n, MemberCondition); c != nil && c.Status == corev1.ConditionFalse {
			reported[c.Reason]++
		}
	}
	m.unreached.WithLabelValues("failed").Set(float64(reported[reasonFailed]))
	m.unreached.WithLabelValues("missing").Set(float64(reported[reasonMissing]))
}
