package controller_test

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// calm ends all faults, waits until rejected requests are retried, and compares.
func (s *schedule) calm() {
	s.cloud.setFault(nil)
	s.cloud.sim.ClearFaults()
	s.editNode("node-3", readiness(corev1.ConditionTrue))
	time.Sleep(3 * time.Hour)
	// A Service without a load balancer, because its name is taken, takes requests with each list:
	// by its name, by its labels, and three pages of servers, to verify that the project is the
	// cluster's.
	waiting := 0
	for _, name := range scheduled {
		if svc := s.live(name); svc != nil && accepted(svc) == "False "+lb.ReasonNotOwned {
			waiting++
		}
	}
	s.bounded("an hour of calm", 60+waiting*12*5)
	s.transfer()
	owners, alive := map[int32]string{}, map[string]*corev1.Service{}
	for _, name := range scheduled {
		if svc := s.live(name); svc != nil {
			if svc.DeletionTimestamp != nil {
				s.t.Errorf("Service %s is not let go: %v", name, svc.Status.Conditions)
				continue
			}
			alive[string(svc.UID)] = svc
			for _, p := range svc.Spec.Ports {
				owners[p.NodePort] = string(svc.UID)
			}
		}
	}
	shown := map[string]string{} // the UID of a Service that each address of a load balancer serves
	for _, have := range s.cloud.all() {
		for _, uid := range have.Services() {
			if alive[uid] == nil {
				s.t.Errorf("load balancer %q is left of a Service that is gone", have.Name)
			}
		}
		pods := slices.ContainsFunc(have.Targets, lb.Target.Pod)
		for _, l := range have.Listeners {
			owner := have.PortOwner(l.Port)
			if !have.Shared() {
				owner = have.Services()[0]
			}
			shown[have.IPv4.String()+" "+owner] = have.Name
			if !pods && l.DestinationPort != 8080 && owners[int32(l.DestinationPort)] != owner {
				s.t.Errorf("port %d of load balancer %q, which is %s's, leads to node port %d of %q", l.Port, have.Name, owner, l.DestinationPort, owners[int32(l.DestinationPort)])
			}
		}
	}
	for _, have := range s.cloud.all() {
		if svc := alive[have.Services()[0]]; svc != nil && !have.Shared() && svc.Annotations[lb.AnnotationShared] == "" && s.understood(svc) {
			s.compare(svc, have)
		}
	}
	for uid, svc := range alive {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if strings.HasPrefix(in.IP, "198.18.") && shown[in.IP+" "+uid] == "" {
				s.t.Errorf("Service %s shows %s, which does not serve it", svc.Name, in.IP)
			}
		}
		if accepted(svc) == "True Accepted" && ingress(svc) == "" {
			s.t.Errorf("Service %s is accepted and has no address", svc.Name)
		}
		wrong := svc.Annotations[lb.HetznerPrefix+"health-check-retries"] == "9" || svc.Spec.LoadBalancerSourceRanges != nil
		if named := svc.Annotations[lb.AnnotationName] != "" || svc.Annotations[lb.AnnotationShared] != ""; !wrong && !named && ingress(svc) == "" {
			s.t.Errorf("Service %s has no address: %v", svc.Name, svc.Status.Conditions)
		}
	}
}

// transfer makes a Service free a name for which another one waits, and which then has it at once.
func (s *schedule) transfer() {
	named := func(is func(*corev1.Service) bool) *corev1.Service {
		for _, name := range scheduled {
			if svc := s.live(name); svc != nil && svc.DeletionTimestamp == nil && svc.Annotations[lb.AnnotationShared] == "" && is(svc) {
				return svc
			}
		}
		return nil
	}
	waits := named(func(svc *corev1.Service) bool { return accepted(svc) == "False "+lb.ReasonNotOwned })
	if waits == nil {
		return
	}
	wanted := waits.Annotations[lb.AnnotationName]
	has := named(func(svc *corev1.Service) bool {
		return svc.UID != waits.UID && (accepted(svc) == "True Accepted" || accepted(svc) == "False "+lb.ReasonNoHealthyTarget) && svc.Annotations[lb.AnnotationName] == wanted
	})
	if has == nil || wanted == "" {
		return
	}
	s.change(has, func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationName) })
	time.Sleep(20 * time.Second)
	s.settle()
	if svc := s.live(waits.Name); accepted(svc) == "False "+lb.ReasonNotOwned {
		s.t.Errorf("Service %s waits for the name %q, which Service %s gave up", svc.Name, wanted, has.Name)
	}
}

// understood reports whether a Service has no problem, except for a taken name or missing healthy
// targets.
func (s *schedule) understood(svc *corev1.Service) bool {
	for _, text := range []string{"True Accepted", "False " + lb.ReasonNoHealthyTarget, "False " + lb.ReasonNotOwned} {
		if accepted(svc) == text {
			return svc.Name != "web"
		}
	}
	return false
}

// compare compares a load balancer with its Service's settings.
func (s *schedule) compare(svc *corev1.Service, have lb.State) {
	message := func(key string) string { return svc.Annotations[lb.HetznerPrefix+key] }
	if want := message("disable-public-network") != "true"; have.Public != want {
		s.t.Errorf("load balancer %q is public: %t", have.Name, have.Public)
	}
	if len(have.Listeners) != 1 || len(have.Targets) != 3 {
		s.t.Errorf("load balancer %q has %d listeners and targets %v", have.Name, len(have.Listeners), have.Targets)
		return
	}
	if want := message("ipv4-rdns"); have.Public && want != have.IPv4Name && (want != "" || !strings.HasPrefix(have.IPv4Name, "static.")) {
		s.t.Errorf("load balancer %q has reverse DNS %q, want %q", have.Name, have.IPv4Name, want)
	}
	check, port := have.Listeners[0].Check, 10256
	switch explicit := message("health-check-protocol"); {
	case explicit != "":
		port = int(svc.Spec.Ports[0].NodePort)
		if want := cmp.Or(message("health-check-http-path"), "/"); explicit == "http" && check.Path != want {
			s.t.Errorf("load balancer %q checks %s, want %s", have.Name, check, want)
		}
	case svc.Spec.HealthCheckNodePort != 0:
		port = int(svc.Spec.HealthCheckNodePort)
	case message("uses-proxyprotocol") == "true":
		port = int(svc.Spec.Ports[0].NodePort)
	}
	if check.Port != port {
		s.t.Errorf("load balancer %q checks %s, want port %d", have.Name, check, port)
	}
}
