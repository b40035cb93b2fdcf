package doctor

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/lb"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
)

func balancerOwner(x *cluster) (found []Finding) {
	for _, b := range x.balancings {
		c := accepted(b.Service)
		f := Finding{Object: serviceObject(b.Service)}
		switch {
		case errors.Is(b.Conflict, lb.ErrAmbiguous):
			f.What, f.Remedy = b.Conflict.Error(), "remove the underlay.dev labels from all but one: hcloud load-balancer remove-label"
		case b.Conflict != nil:
			f.What = b.Conflict.Error()
		case c != nil && c.Status == metav1.ConditionFalse && c.Reason == lb.ReasonNotOwned:
			f.What = c.Message
		default:
			continue
		}
		found = append(found, f)
	}
	for _, b := range x.Orphans() {
		found = append(found, Finding{
			Severity: Warning, Object: "load-balancer/" + b.Name,
			What:   fmt.Sprintf("load balancer %d carries the labels of cluster %s and belongs to none of its Services; it costs money", b.ID, x.Config.ClusterName),
			Remedy: fmt.Sprintf("delete it if it is not needed: hcloud load-balancer delete %d", b.ID),
		})
	}
	return found
}

func balancerHealth(x *cluster) (found []Finding) {
	endpoints := x.EndpointsByService()
	for _, b := range x.balancings {
		if b.LoadBalancer == nil || x.age(b.LoadBalancer.Created) < survey.GracePeriod {
			continue // health checks have just started
		}
		ready := servingNodes(endpoints[survey.NameOf(b.Service)])
		if len(ready) == 0 {
			continue // no endpoint can be healthy
		}
		for _, l := range b.LoadBalancer.Listeners {
			if f, sick := x.sick(b, l, ready); sick {
				found = append(found, f)
			}
		}
	}
	return found
}

func servingNodes(all []*discoveryv1.EndpointSlice) []string {
	nodes := map[string]bool{}
	for _, s := range all {
		for _, e := range s.Endpoints {
			if e.NodeName != nil && readyEndpoint(e) {
				nodes[*e.NodeName] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// sick returns the finding of a listener with unhealthy targets. With policy Local, Nodes without
// endpoints should be unhealthy. Nodes that just joined may still be, and so may single pods.
func (x *cluster) sick(b survey.Balancing, l lb.Listener, ready []string) (f Finding, sick bool) {
	local := b.Service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	var names []string
	for _, t := range b.LoadBalancer.Targets {
		if b.LoadBalancer.Verdicts[l.Port][t] != lb.Unhealthy {
			continue
		}
		name, cause := t.Address.String(), b.LoadBalancer.Why[l.Port][t]
		remedy := fmt.Sprintf("let the pods listen on port %d on IPv6, and filters let the load balancer reach it: underlay-agent check on a node lists the open ports; if it connects from another address than its own public one, name that in loadBalancers.podTargetSources", l.Check.Port)
		if !t.Pod() {
			i := slices.IndexFunc(x.Nodes, func(n *corev1.Node) bool { return lbcontroller.Is(n, t) })
			if i < 0 {
				continue
			}
			n := x.Nodes[i]
			_, old := x.waiting(n)
			_, absent := x.absent[n.Name]
			if !old || absent || !kube.Ready(n) || local && !slices.Contains(ready, n.Name) {
				continue
			}
			name, remedy = n.Name, open(l.Check, addressOf(n, t), cause)
		}
		if why := cause.String(); why != "" {
			name += " (" + why + ")"
		}
		if names = append(names, name); len(names) == 1 {
			f = Finding{Object: serviceObject(b.Service), Severity: Warning, Remedy: remedy}
		}
	}
	health := b.LoadBalancer.Health(l.Port)
	if len(names) == 0 || health.Healthy > 0 && b.LoadBalancer.Targets[0].Pod() {
		return Finding{}, false
	}
	f.What = fmt.Sprintf("port %d: %d of %d targets are unhealthy (check %s), although the Service has ready endpoints on %s; among them %s",
		l.Port, health.Unhealthy, health.Unhealthy+health.Healthy+health.Unknown, l.Check, few(ready),
		few(names))
	if health.Healthy == 0 {
		f.Severity = Error
		f.What += ": no traffic gets through"
	}
	return f, true
}

// addressOf returns the address at which load balancers reach a Node: of a cloud server its first
// IPv4 address.
func addressOf(n *corev1.Node, t lb.Target) netip.Addr {
	all := kube.ExternalIPs(n)
	if t.Private {
		all = kube.InternalIPs(n)
	}
	if i := slices.IndexFunc(all, netip.Addr.Is4); i >= 0 && !t.Address.IsValid() {
		return all[i]
	}
	return t.Address
}

// open returns the remedy for a failing health check by its cause, with a command to try it.
func open(c lb.HealthCheck, node netip.Addr, why lb.Cause) string {
	try := fmt.Sprintf("nc -zv %s %d", node, c.Port)
	if c.Protocol != lb.ProtocolTCP {
		options, scheme := "-i", "http"
		if c.TLS {
			options, scheme = "-ik", "https"
		}
		if c.Domain != "" {
			options += fmt.Sprintf(" -H 'Host: %s'", c.Domain)
		}
		try = fmt.Sprintf("curl %s %s://%s%s", options, scheme, netip.AddrPortFrom(node, uint16(c.Port)),
			c.Path)
	}
	switch why.Detail {
	case lb.DetailNoConnection:
		return fmt.Sprintf("the node refuses connections: see that something listens on its TCP port %d, which is kube-proxy unless annotations say otherwise, and that no firewall rejects: %s", c.Port, try)
	case lb.DetailHTTPStatus, lb.DetailHTTPContent, lb.DetailResponseTimeout:
		return fmt.Sprintf("the node is reached, and the program on its TCP port %d is at fault: kube-proxy returns 503 while the node drains, while its rules are stale, or where the Service has no endpoint with policy Local: %s", c.Port, try)
	}
	return fmt.Sprintf("open TCP port %d of the nodes to load balancers (firewall of the machine; for public addresses also the cloud's), and make sure that kube-proxy listens there: %s", c.Port, try)
}

func serviceChecks() []check {
	return []check{
		newCheck("service-refused", Error, (*cluster).balances,
			survey.PartServices|survey.PartNodes|survey.PartEndpointSlices,
			"correct the Service as the message describes; see docs/reference/annotations.md",
			serviceRefused),
		newCheck("service-family", Warning, (*cluster).allocates, survey.PartServices,
			"add a pool of that family (key pools of underlay-config), or take it from spec.ipFamilies of the Service", serviceFamily),
		newCheck("load-balancer-owner", Error, (*cluster).balances, seesBalancing,
			"choose another name (annotation load-balancer.hetzner.cloud/name), or where the load balancer is to become this Service's, follow the Service's Event: label it in the cloud, and set the annotation underlay.dev/adopt to true", balancerOwner),
		newCheck("load-balancer-health", Error, (*cluster).balances, seesBalancing,
			"let load balancers reach the port of the health check on every node", balancerHealth),
	}
}

func accepted(svc *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(svc.Status.Conditions, lbcontroller.ConditionAccepted)
}

func serviceRefused(x *cluster) (found []Finding) {
	endpoints := x.EndpointsByService()
	reason, blind := "", false
	if x.inNetwork() {
		reason, blind = x.blind(survey.PartNetwork)
	}
	for _, svc := range x.Services {
		if !svc.DeletionTimestamp.IsZero() || !lbcontroller.Ours(svc, x.Config.LoadBalancers.Classless) {
			continue
		}
		c := accepted(svc)
		switch {
		case c != nil && c.Status == metav1.ConditionFalse && c.Reason == lb.ReasonNotOwned:
			// load-balancer-owner reports this.
		case c != nil && c.Status == metav1.ConditionFalse:
			found = append(found, Finding{Object: serviceObject(svc), What: c.Reason + ": " + c.Message})
		case c == nil && x.age(svc.CreationTimestamp.Time) > survey.GracePeriod:
			what, remedy := unnoticed(x.age(svc.CreationTimestamp.Time))
			found = append(found, Finding{Object: serviceObject(svc), What: what, Remedy: remedy})
		case !blind:
			for _, note := range x.NotesOf(svc, endpoints[survey.NameOf(svc)]) {
				found = append(found, Finding{
					Severity: graded(note.Grade), Object: serviceObject(svc),
					What: note.Reason + ": " + note.String(),
				})
			}
		}
	}
	if blind {
		found = append(found, unseen(reason)...)
	}
	return found
}

// unnoticed is about a Service that no CCM has processed.
func unnoticed(age time.Duration) (what, remedy string) {
	return fmt.Sprintf("it was created %s ago, and no cloud controller manager has looked at it",
			duration.HumanDuration(age)),
		"see that the cloud controller manager leads (checks cloud-controller and leader): " + managerLogs
}

func graded(g lb.Grade) Severity {
	if g == lb.Error {
		return Error
	}
	return Warning
}

func serviceFamily(x *cluster) []Finding {
	pools := map[corev1.IPFamily]bool{}
	for _, p := range x.Pools() {
		if p.Own || p.Prefix.Addr().Is6() {
			pools[corev1.IPv6Protocol] = true
		} else {
			pools[corev1.IPv4Protocol] = true
		}
	}
	var found []Finding
	for _, svc := range x.Services {
		for _, family := range svc.Spec.IPFamilies {
			if !pools[family] && svc.Spec.ClusterIP != corev1.ClusterIPNone {
				found = append(found, about(serviceObject(svc),
					"it requests %s (ipFamilies %v), and no pool hands out podCIDRs of that family: it has no endpoints there", family, svc.Spec.IPFamilies))
			}
		}
	}
	return found
}
