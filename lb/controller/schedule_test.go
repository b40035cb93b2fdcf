package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// schedule is a random sequence of events around some Services. Users edit, pods flap, nodes are
// added and removed, someone uses the cloud's console. The cloud rejects requests, loses replies
// and exceeds its rate limit. The controller stops and starts.
type schedule struct {
	*world
	r     *rand.Rand
	p     *pods
	steps []string
	// sick means that no health check finds a healthy target, which must not delay any
	// configuration.
	sick atomic.Bool

	mu sync.Mutex // the controller's goroutines read the following fields
	// private has the UIDs of Services that request to be private during their whole life.
	private map[string]bool
	states  map[lb.Target]string // of the pods
	still   time.Time            // since when they are unchanged
}

func (s *schedule) isPrivate(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.private[uid]
}

func (s *schedule) podsAre(states map[lb.Target]string) {
	s.mu.Lock()
	s.states, s.still = states, time.Now()
	s.mu.Unlock()
	s.p.states = states
	s.p.publish()
}

// serves reports whether a pod, which is a target, has served at least as well as any other for a
// while.
func (s *schedule) serves(pod lb.Target) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.states))
	state, better := s.states[pod], slices.Contains(all, "ready") || slices.Contains(all, "draining")
	return time.Since(s.still) > 15*time.Second && (state == "ready" || state == "waiting" && !better)
}

var (
	scheduled  = []string{"a", "b", "c", "web"}
	nodePorts  = []int32{30001, 30002, 30003, 30004, 30005, 30006, 30007, 30008, 30009}
	annotation = map[string][]string{
		"type": {"lb11", "lb21"}, "algorithm-type": {"round_robin", "least_connections"}, "name": {"front", "back"},
		"use-private-ip": {"true", "false"}, "ipv4-rdns": {"a.example.com", "b.example.com"}, "health-check-protocol": {"tcp", "http"},
		"health-check-http-path": {"/old", "/new"}, "health-check-retries": {"2", "9"}, "uses-proxyprotocol": {"true", "false"},
	}
)

func (s *schedule) live(name string) *corev1.Service {
	svc, err := s.api.CoreV1().Services("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	if svc.DeletionTimestamp != nil &&
		len(svc.Finalizers) == 0 { // the fake keeps objects that the API server removes
		err := s.api.CoreV1().Services("default").Delete(context.Background(), name,
			metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) { // the controller's goroutines, which call this too, remove it
			must(err)
		}
		return nil
	}
	return svc
}

// freePort returns a node port that no Service has. As Kubernetes does, it reuses ports that
// another Service just freed.
func (s *schedule) freePort() int32 {
	taken := map[int32]bool{}
	for _, name := range scheduled {
		if svc := s.live(name); svc != nil {
			for _, p := range svc.Spec.Ports {
				taken[p.NodePort] = true
			}
		}
	}
	free := slices.DeleteFunc(slices.Clone(nodePorts), func(p int32) bool { return taken[p] })
	return free[s.r.IntN(len(free))]
}

// change edits a Service as a user's tool does, without a conflict with the controller's writes.
func (s *schedule) change(svc *corev1.Service, edit func(*corev1.Service)) {
	after := svc.DeepCopy()
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	edit(after)
	annotations := map[string]any{}
	for key := range svc.Annotations {
		annotations[key] = nil
	}
	for key, value := range after.Annotations {
		annotations[key] = value
	}
	spec := map[string]any{
		"ports": after.Spec.Ports, "type": after.Spec.Type, "externalTrafficPolicy": after.Spec.ExternalTrafficPolicy,
		"healthCheckNodePort": after.Spec.HealthCheckNodePort, "loadBalancerSourceRanges": after.Spec.LoadBalancerSourceRanges,
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec})
	must(err)
	_, err = s.api.CoreV1().Services("default").Patch(context.Background(), svc.Name, types.MergePatchType, body, metav1.PatchOptions{})
	must(err)
}

func (s *schedule) birth(name string) {
	svc := service(name)
	svc.UID = types.UID(fmt.Sprintf("%s%d-uid", name, s.r.IntN(1e6)))
	svc.CreationTimestamp = metav1.Now()
	svc.Spec.Ports[0].Port, svc.Spec.Ports[0].NodePort = 80+
		int32(slices.Index(scheduled, name)), s.freePort()
	if s.r.IntN(3) == 0 {
		svc.Annotations[lb.AnnotationName] = "front"
	}
	switch {
	case name == "web":
		svc.Annotations[lb.AnnotationTargets] = "pods"
		svc.Spec.Ports[0].TargetPort.IntVal = 8080
	case s.r.IntN(3) == 0:
		s.mu.Lock()
		s.private[string(svc.UID)] = true
		s.mu.Unlock()
		toPrivate(svc)
		svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true"
		if s.r.IntN(2) == 0 {
			svc.Annotations[lb.HetznerPrefix+"private-ipv4"] = fmt.Sprint("10.0.3.", 10+slices.Index(scheduled, name))
		}
	}
	_, err := s.api.CoreV1().Services("default").Create(context.Background(), svc, metav1.CreateOptions{})
	must(err)
}

// edit makes one change of a user to a Service.
func (s *schedule) edit(name string, svc *corev1.Service) {
	private := s.isPrivate(string(svc.UID))
	s.change(svc, func(svc *corev1.Service) {
		switch n := s.r.IntN(12); {
		case n == 0 && name != "web" && !private:
			svc.Annotations[lb.AnnotationShared] = pickOf(s.r, "edge", "other")
		case n == 1:
			delete(svc.Annotations, lb.AnnotationShared)
		case n == 2, n == 7:
			svc.Spec.Ports[0].NodePort = s.freePort()
		case n == 8: // an invalid setting
			svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9"
		case n == 3 && len(svc.Spec.Ports) == 1:
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: "UDP", NodePort: s.freePort()})
		case n == 3:
			svc.Spec.Ports = svc.Spec.Ports[:1]
		case n == 4 && svc.Spec.HealthCheckNodePort == 0:
			toLocal(svc)
		case n == 4:
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			svc.Spec.HealthCheckNodePort = 0
		case n == 5 && svc.Spec.LoadBalancerSourceRanges == nil:
			svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		case n == 5:
			svc.Spec.LoadBalancerSourceRanges = nil
		case n == 6 && name != "web" && !private:
			toPrivate(svc)
			svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = pickOf(s.r, "true", "false")
		default:
			keys := slices.Sorted(mapKeys(annotation))
			key := keys[s.r.IntN(len(keys))]
			if key == "use-private-ip" && (private || name == "web") {
				return
			}
			if svc.Annotations[lb.HetznerPrefix+key] != "" {
				delete(svc.Annotations, lb.HetznerPrefix+key)
			} else {
				svc.Annotations[lb.HetznerPrefix+key] = pickOf(s.r, annotation[key]...)
			}
		}
	})
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// step applies one random event.
func (s *schedule) step() {
	name := pickOf(s.r, scheduled...)
	svc := s.live(name)
	what := pickOf(s.r, "edit", "edit", "edit", "edit", "end", "pods", "pods", "node", "console", "refuse", "refuse", "lose", "budget", "restart", "kill", "sick", "flap", "hour")
	s.steps = append(s.steps, what+" "+name)
	switch {
	case svc == nil:
		s.birth(name)
	case svc.DeletionTimestamp != nil:
	case what == "edit":
		s.edit(name, svc)
	case what == "end":
		body := fmt.Sprintf(`{"metadata":{"deletionTimestamp":%q}}`, time.Now().UTC().Format(time.RFC3339))
		_, err := s.api.CoreV1().Services("default").Patch(context.Background(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		must(err)
	case what == "pods":
		states := map[lb.Target]string{}
		for i := range 3 {
			if state := pickOf(s.r, "ready", "ready", "waiting", "draining", ""); state != "" {
				states[podAt(1+i%2, 1+i)] = state
			}
		}
		s.podsAre(states)
	case what == "sick":
		s.sick.Store(!s.sick.Load())
	case what == "flap":
		s.flap()
	case what == "hour": // an hour with the current faults
		s.bounded("an hour of refusals", 400)
	case what == "node":
		s.editNode("node-3", readiness(pickOf(s.r, corev1.ConditionTrue, corev1.ConditionFalse)))
	case what == "console":
		s.console()
	case what == "refuse":
		kind := pickOf(s.r, "create", "change_type", "add_target", "set_public_interface", "update_listener", "add_listener", "rename", "attach_network", "delete")
		s.cloud.setFault(func(op lb.Op) error {
			if lb.Kind(op) == kind {
				return &lb.RejectedError{Code: "refused", Message: "refused for the schedule", Target: kind == "add_target"}
			}
			return nil
		})
	case what == "lose":
		must(s.cloud.sim.Inject(hcloudsim.Fault{Match: pickOf(s.r, "POST /load_balancers", "/load_balancers/{rest...}"), Status: http.StatusServiceUnavailable, Applied: true, Times: 1 + s.r.IntN(2)}))
	case what == "budget":
		must(s.cloud.sim.Inject(hcloudsim.Fault{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", Times: 3}))
	case what == "restart":
		s.restart()
	case what == "kill":
		s.kill()
		s.restart()
	}
	time.Sleep(pickOf(s.r, 0, time.Second, 5*time.Second, 70*time.Second))
}

// flap makes one pod ready and not ready for ten minutes.
func (s *schedule) flap() {
	s.podsAre(map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 2): "ready"})
	time.Sleep(time.Minute)
	s.requests()
	for range 20 {
		for _, state := range []string{"waiting", "ready"} {
			s.podsAre(map[lb.Target]string{podAt(1, 1): state, podAt(2, 2): "ready"})
			time.Sleep(15 * time.Second)
		}
	}
	most := 60
	if svc := s.live("web"); svc != nil && accepted(svc) == "False "+lb.ReasonNotOwned {
		most = 160 // it has no load balancer, and each change of its pods looks for one
	}
	if reads, writes := s.requests(); reads+writes > most {
		s.t.Errorf("a flapping pod: %d reads and %d writes in ten minutes", reads, writes)
	}
}

// bounded lets an hour pass, and limits its requests.
func (s *schedule) bounded(what string, most int) {
	s.settle()
	s.requests()
	time.Sleep(time.Hour)
	s.settle()
	if reads, writes := s.requests(); reads+writes > most {
		s.t.Errorf("%s: %d reads and %d writes", what, reads, writes)
	}
}

// console makes a change in the cloud's console.
func (s *schedule) console() {
	all := s.cloud.all()
	if len(all) == 0 {
		return
	}
	have := all[s.r.IntN(len(all))]
	switch s.r.IntN(6) {
	case 0, 4, 5:
		_ = s.cloud.client.Apply(context.Background(), have, lb.Delete{})
	case 1:
		_ = s.cloud.client.Apply(context.Background(), have, lb.ChangeAlgorithm{
			Algorithm: lb.LeastConnections,
		})
	case 2:
		if len(have.Targets) > 0 {
			_ = s.cloud.client.Apply(context.Background(), have, lb.RemoveTarget{Target: have.Targets[0]})
		}
	case 3:
		labels := map[string]string{}
		for k, v := range have.Labels {
			if k != lb.LabelShared {
				labels[k] = v
			}
		}
		_ = s.cloud.client.Apply(context.Background(), have, lb.SetLabels{Labels: labels})
	}
}

// watchOver checks each op before the controller executes it.
func (s *schedule) watchOver(have lb.State, op lb.Op) {
	for _, now := range s.cloud.all() {
		for _, uid := range now.Services() {
			if s.isPrivate(uid) && !now.Shared() && now.Public && len(now.Listeners) > 0 {
				s.t.Errorf("before %q load balancer %q is public, which was asked to be private", op, now.Name)
			}
		}
	}
	if remove, ok := op.(lb.RemoveTarget); ok && remove.Target.Pod() && s.serves(remove.Target) {
		if svc := s.live("web"); svc != nil && lb.WantsPods(svc.Annotations) {
			s.t.Errorf("%s is removed, and serves as well as any other", remove.Target)
		}
	}
	if _, deletes := op.(lb.Delete); !deletes {
		return
	}
	for _, name := range scheduled {
		svc := s.live(name)
		if svc != nil && svc.DeletionTimestamp == nil &&
			slices.Contains(have.Services(), string(svc.UID)) && have.IPv4.IsValid() && have.Public &&
			strings.Contains(ingress(svc), have.IPv4.String()) {
			s.t.Errorf("load balancer %q is deleted while Service %s shows its address", have.Name, name)
		}
	}
}

// After every calm, each port is forwarded to its own Service only, the addresses in the status
// work, private load balancers were never public, and nothing remains of deleted Services.
func TestRandomSchedule(t *testing.T) {
	for seed := range uint64(24 / slowdown) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inPodWorld(t, hcloudsim.Options{HealthyAfter: 20 * time.Second}, func(w *world, p *pods) {
				s := &schedule{world: w, r: rand.New(rand.NewPCG(seed, 1)), p: p, private: map[string]bool{}}
				w.cloud.observe = s.watchOver
				w.cloud.judge = func(lb.Target) lb.Verdict {
					if s.sick.Load() {
						return lb.Unhealthy
					}
					return lb.Healthy
				}
				for range 3 {
					for range 40 {
						s.step()
					}
					s.calm()
				}
				if t.Failed() {
					t.Logf("%s\n%s", strings.Join(s.steps, ", "), w.cloud)
				}
			})
		})
	}
}
