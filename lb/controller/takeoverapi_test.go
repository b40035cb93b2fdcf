package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// found creates a load balancer for the Service with the labels of another controller, or without
// labels, and a Service that this controller has never served, with a finalizer and addresses.
func (l *lab) found(svc *corev1.Service, labels map[string]string) schema.LoadBalancer {
	l.t.Helper()
	b := l.converged(svc, l.nodes...)
	svc.Status.LoadBalancer = l.live(svc).Status.LoadBalancer
	svc.Finalizers = []string{helpers.LoadBalancerCleanupFinalizer}
	l.must(l.cloud.Apply(quiet(l.t.Context()), lb.State{ID: b.ID}, lb.SetLabels{Labels: labels}))
	l.must(l.api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), svc.Namespace, svc.Name))
	l.put(svc, l.nodes...)
	l.restart()
	l.sim.ResetRequests()
	b, _ = l.sim.LoadBalancer(b.ID)
	return b
}

// The Hetzner controller's load balancer is found by its label and by its name, through the real
// API, and only its labels change; one without an owner is adopted if the user requests it.
func TestTakeoverThroughTheAPI(t *testing.T) {
	peer := map[string]string{lb.LabelPeer: "0a1b2c3d-0000-4000-8000-000000000001"}
	for name, c := range map[string]struct {
		labels map[string]string
		change func(*corev1.Service)
		writes int
	}{
		"by label": {
			labels: peer, writes: 2, // it gets another name too
			change: func(svc *corev1.Service) { svc.Annotations[lb.AnnotationName] = "before" },
		},
		"by name": {labels: peer, writes: 2, change: func(svc *corev1.Service) { svc.Status = corev1.ServiceStatus{} }},
		"adopted": {
			labels: map[string]string{
				"underlay.dev/adopt-cluster": "lab", "underlay.dev/adopt-namespace": "default", "underlay.dev/adopt-service": "000000000001",
			},
			writes: 1, change: func(svc *corev1.Service) { svc.Annotations["underlay.dev/adopt"] = "true" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				svc := l.service("000000000001")
				before := l.found(svc, c.labels)
				c.change(svc)
				live := l.live(svc)
				live.Status = svc.Status
				l.must(l.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("services"), live, live.Namespace))
				notes, err := l.once(svc, l.nodes...)
				reads, writes := l.requests()
				after := l.balancer(svc)
				if err != nil || slices.ContainsFunc(notes, isError) || after.ID != before.ID ||
					len(l.sim.LoadBalancers()) != 1 || writes != c.writes || reads > 7 {
					t.Errorf("load balancer %d, was %d; %d reads, %d writes, %v, notes %v", after.ID, before.ID, reads, writes, err, notes)
				}
				if after.Labels[lb.LabelCheck] != "kept" || after.Labels[lb.LabelCluster] != "lab" || after.PublicNet.IPv4.IP != before.PublicNet.IPv4.IP {
					t.Errorf("labels %v", after.Labels)
				}
			})
		})
	}
}

// Load balancers of other owners don't change, with any labels and annotations, and when the
// Service is deleted. One that the Hetzner controller created for the Service is deleted with it,
// also before the takeover.
func TestForeignLoadBalancersThroughTheAPI(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"the Hetzner controller's for another Service": {lb.LabelPeer: "another-service"},
		"Cluster API's":          {"caph-cluster-prod": "owned"},
		"Terraform's":            {"managed-by": "terraform"},
		"made by hand":           {},
		"given to somebody else": {"underlay.dev/adopt-cluster": "lab", "underlay.dev/adopt-namespace": "other", "underlay.dev/adopt-service": "000000000001"},
		"the Service's":          {lb.LabelPeer: "0a1b2c3d-0000-4000-8000-000000000001"},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				t, svc := l.t, l.service("000000000001")
				before := l.found(svc, labels)
				left := name != "the Service's"
				if left {
					svc.Annotations["underlay.dev/adopt"] = "true"
					notes, err := l.once(svc, l.nodes...)
					if err != nil || len(notes) != 1 || notes[0].Reason != lb.ReasonNotOwned ||
						len(l.states.all()) > 0 {
						t.Errorf("%v, notes %v", err, notes)
					}
				}
				svc.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				l.requests()
				if _, err := l.once(svc, l.nodes...); err != nil || holds(l.live(svc)) {
					t.Errorf("it does not go: %v", err)
				}
				if reads, _ := l.requests(); reads > 4 {
					t.Errorf("%d reads", reads)
				}
				after, there := l.sim.LoadBalancer(before.ID)
				if there != left || left && l.shape(after) != l.shape(before) {
					t.Errorf("there: %t\n%s\nwas %s", there, l.shape(after), l.shape(before))
				}
			})
		})
	}
}

// One bad target never stops the rest, and failed changes are retried.
func TestOneBadTargetThroughTheAPI(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		notes, err := l.once(svc, append(l.nodes[3:], readyNode("bad", "hcloud://999999"), l.nodes[0])...)
		b := l.balancer(svc)
		if err != nil || len(b.Targets) != 3 || l.backoff.next(l.owner(svc)) == 0 || len(notes) != 1 || !strings.Contains(notes[0].Text, "Node bad: add server 999999") {
			t.Errorf("%d targets, %v, notes %v", len(b.Targets), err, notes)
		}
	})
}

// The targets of a label selector that another client added are kept, with any other change, and
// count against the limit. A server or an address without a Node is removed.
func TestTargetsOfOthers(t *testing.T) {
	inLab(t, func(l *lab) {
		b := l.converged(l.everything(), l.nodes...)
		for _, body := range []string{
			`{"type":"ip","ip":{"ip":"` + dedicatedAddress + `"}}`,
			`{"type":"label_selector","label_selector":{"selector":"role=edge"}}`,
		} {
			l.post(fmt.Sprintf("/load_balancers/%d/actions/add_target", b.ID), body)
		}
		notes, err := l.once(l.changed(), l.nodes[:2]...)
		b = l.balancer(l.changed())
		kinds := map[string]int{}
		for _, target := range b.Targets {
			kinds[target.Type]++
		}
		if err != nil || kinds["ip"] != 0 || kinds["label_selector"] != 1 || kinds["server"] != 2 || b.Name != "shop" || b.LoadBalancerType.Name != "lb21" {
			t.Errorf("targets %v, name %s, type %s, %v\n%s", kinds, b.Name, b.LoadBalancerType.Name, err, l.log())
		}
		// Another address in the network would permanently drop such a target, if it were in the
		// network: the change waits.
		if b.PrivateNet[0].IP != "10.0.0.9" || len(notes) != 1 || notes[0].Reason != lb.ReasonImmutable {
			t.Errorf("address %s, notes %v", b.PrivateNet[0].IP, notes)
		}
	})
}

// A certificate that the cloud could not obtain is retried when it is due, and then used: a process
// that doesn't know the time of the last attempt waits for an hour, and then for a day.
func TestFailedCertificateThroughTheAPI(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.everything()
		fails := hcloudsim.Fault{Match: "POST /certificates/{rest...}", Times: -1, FailAction: "dns_zone_not_found"}
		l.must(l.sim.Inject(hcloudsim.Fault{Match: "POST /certificates", FailAction: "dns_zone_not_found"}))
		l.must(l.sim.Inject(fails))
		// tries reconciles the Service every 5 minutes for a while, and returns the number of
		// attempts.
		tries := func(d time.Duration) (writes int) {
			t.Helper()
			l.requests()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(maxRetryDelay) {
				notes, _ := l.once(svc, l.nodes...)
				if !slices.ContainsFunc(notes, func(n lb.Note) bool {
					return n.Reason == lb.ReasonCertificate
				}) {
					t.Errorf("notes %v\n%s", notes, l.log())
				}
			}
			_, writes = l.requests()
			return writes
		}
		_, _ = l.once(svc, l.nodes...)
		if n := tries(firstReissue); n != 0 {
			t.Errorf("%d tries at once", n)
		}
		if n := tries(reissuePeriod - time.Hour); n != 1 {
			t.Errorf("%d tries within a day, want 1", n)
		}
		l.sim.ClearFaults()
		if n := tries(30 * time.Minute); n != 0 {
			t.Errorf("%d tries before a day is over", n)
		}
		time.Sleep(2 * time.Hour)
		if b := l.converged(svc, l.nodes...); len(b.Services) != 2 || len(l.certificates()) != 1 {
			t.Errorf("%s\n%s", l.shape(b), l.log())
		}
	})
}
