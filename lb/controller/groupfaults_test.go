package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// sharing returns a Service with one port that shares.
func (l *lab) sharing(name string, port int32) *corev1.Service {
	svc := l.service(name)
	svc.Annotations[lb.AnnotationShared] = "edge"
	svc.Spec.Ports = []corev1.ServicePort{{Port: port, Protocol: "TCP", NodePort: 30000 + port}}
	return svc
}

// groupSteps returns two Services; then one is added and one changes; then one is deleted.
func groupSteps(l *lab) [][]*corev1.Service {
	a, b, c := l.sharing("00000000000a", 80), l.sharing("00000000000b", 81), l.sharing("00000000000c", 82)
	changed := b.DeepCopy()
	changed.Spec.Ports[0].Port = 91
	gone := changed.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return [][]*corev1.Service{{a, b}, {a, changed, c}, {a, gone, c}}
}

// checkGroup returns the problem with the group's load balancer at the end, or "".
func checkGroup(l *lab) string {
	all, err := l.cloud.List(l.t.Context(), l.Cluster, false)
	var have lb.State
	if found := lb.GroupOwner(l.Cluster, "default.edge").Find(all, nil); len(found) == 1 {
		have = found[0]
	}
	var ports []string
	for _, listener := range have.Listeners {
		ports = append(ports, fmt.Sprint(listener.Port, " ", have.PortOwner(listener.Port)))
	}
	want := []string{"80 " + string(l.service("00000000000a").UID), "82 " + string(l.service("00000000000c").UID)}
	if err != nil || !slices.Equal(ports, want) || len(have.Labels) != 6 {
		return fmt.Sprintf("%v, ports %v, labels %v", err, ports, have.Labels)
	}
	return ""
}
