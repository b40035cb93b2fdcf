package doctor

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/routes"
)

func seededTunnels() []seeded {
	const late = "Node/worker-2"
	keys := []string{"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "CAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}
	tunnels := func(change func(last *corev1.Node)) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			s.Config.WireGuard.Mode = config.WireGuardOverflow
			for i, n := range s.Nodes {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, kube.WireGuardAnnotation, `{"keys": [{"publicKey": "`+keys[i]+`", "port": 51820}]}`)
			}
			change(s.Nodes[2])
		}
	}
	return []seeded{
		{
			name: "a Node that needs tunnels, which are switched off", seed: func(s *survey.Snapshot) {
				metav1.SetMetaDataAnnotation(&s.Nodes[2].ObjectMeta, kube.ReachAnnotation,
					string(routes.NoRoom))
			},
			check: "wireguard", severity: Error, object: late, reports: []string{"no-room", "switched off"}, do: "wireguard: overflow",
		},
		{
			name: "a Node without a WireGuard key", seed: tunnels(func(n *corev1.Node) { delete(n.Annotations, kube.WireGuardAnnotation) }),
			check: "wireguard", severity: Error, object: late, reports: []string{"no WireGuard key"}, do: "underlay-agent",
		},
		{
			name: "a clone with another machine's WireGuard key", seed: tunnels(func(n *corev1.Node) {
				n.Annotations[kube.WireGuardAnnotation] = `{"keys": [{"publicKey": "` + keys[1] + `", "port": 51820}]}`
			}),
			check: "wireguard", severity: Error, object: late, reports: []string{"key of Node worker-1"}, do: "wireguard-*.key",
		},
		{
			name: "a clock that is behind", seed: tunnels(func(n *corev1.Node) {
				n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: new(ago(time.Minute)), FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`)}}
				kube.Condition(n, corev1.NodeReady).LastHeartbeatTime = ago(time.Hour + time.Minute)
			}),
			check: "wireguard", severity: Warning, object: late, reports: []string{"60m behind the"}, do: "NTP",
		},
	}
}
