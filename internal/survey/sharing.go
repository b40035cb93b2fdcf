package survey

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
)

// heldElsewhere says of a Service that has left a shared load balancer, or must not
// share it, that it is served by it all the same.
func (s *Snapshot) heldElsewhere(svc *corev1.Service) []string {
	var notes []string
	owner := lbcontroller.Owner(svc, s.Config.ClusterName)
	current := lbcontroller.KeyOf(svc, s.LBDefaults()).Group
	for _, b := range s.LoadBalancers {
		held := b.Only(string(svc.UID)).Listeners
		if b.Group() == "" || b.Group() == current || !owner.Carries(b.Labels) || len(held) == 0 {
			continue
		}
		ports := make([]string, len(held))
		for i, l := range held {
			ports[i] = strconv.Itoa(l.Port)
		}
		notes = append(notes, fmt.Sprintf("load balancer %s (%d), shared as %s, serves its ports %s until it is served otherwise", b.Name, b.ID, b.Group(), strings.Join(ports, ", ")))
	}
	return notes
}
