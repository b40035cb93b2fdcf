package cloud_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

func withTaints(keys ...string) nodeOption {
	return func(n *corev1.Node) {
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: key, Effect: corev1.TaintEffectNoSchedule,
			})
		}
	}
}

// The initialization of a Node removes its uninitialized taint, so another taint must keep pods
// away by then, unless the routes exist.
func TestTheGateWaitsForTheTaint(t *testing.T) {
	const uninitialized, unavailable = "node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/network-unavailable"
	shown := func(s corev1.ConditionStatus) nodeOption {
		return withCondition(corev1.NodeNetworkUnavailable, s)
	}
	for _, c := range []struct {
		name      string
		options   []nodeOption
		described bool
	}{
		{"no condition", []nodeOption{withTaints(uninitialized)}, false},
		{"the condition, not the taint yet", []nodeOption{withTaints(uninitialized), shown(corev1.ConditionTrue)}, false},
		{"another taint is no help", []nodeOption{withTaints(uninitialized, "node.kubernetes.io/not-ready"), shown(corev1.ConditionTrue)}, false},
		{"condition and taint", []nodeOption{withTaints(uninitialized, unavailable), shown(corev1.ConditionTrue)}, true},
		{"the routes stand", []nodeOption{withTaints(uninitialized), shown(corev1.ConditionFalse)}, true},
		{"nobody knows", []nodeOption{withTaints(uninitialized), shown(corev1.ConditionUnknown)}, false},
		{"initialized before, and unavailable", []nodeOption{shown(corev1.ConditionTrue)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := instances(&project{servers: []cloud.Machine{server(1, "a", "10.0.0.2")}})
			i.Gated = true
			got, err := i.InstanceMetadata(t.Context(), node("a", c.options...))
			if err != nil || (got != nil) != c.described {
				t.Errorf("described %v, %v; want %v", got != nil, err, c.described)
			}
		})
	}
}
