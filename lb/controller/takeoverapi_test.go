package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// relabel gives a load balancer the labels that somebody else's controller, or nobody, would.
func (l *lab) relabel(svc *corev1.Service, labels map[string]string) {
	l.t.Helper()
	have, err := l.backend.Observe(l.t.Context(), l.plan(svc).Spec.Owner)
	l.must(err)
	l.must(l.backend.Apply(l.t.Context(), have, lb.Update{Name: have.Name, Labels: labels}))
	l.sim.ResetRequests()
}

// The Hetzner controller's load balancer is found by its label and by its name, through the real
// API, and nothing of it but the labels changes; a load balancer of nobody is taken if the user
// says so.
func TestTakeoverThroughTheAPI(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		change func(*corev1.Service)
		writes int
	}{
		"by label": {
			labels: map[string]string{lb.LabelPeer: "0a1b2c3d-0000-4000-8000-000000000001"}, writes: 2, // it gets another name too
			change: func(svc *corev1.Service) {
				svc.Annotations[hetznerPrefix+"name"] = "before"
				svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			},
		},
		"by name": {labels: map[string]string{lb.LabelPeer: "0a1b2c3d-0000-4000-8000-000000000001"}, writes: 2},
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
				before := l.converged(svc, l.nodes...)
				l.relabel(svc, c.labels)
				if c.change != nil {
					c.change(svc)
				}
				l.sim.ResetRequests()
				after := l.converged(svc, l.nodes...)
				reads, writes, _ := l.requests()
				if after.ID != before.ID || len(l.sim.LoadBalancers()) != 1 || writes != c.writes || reads > 7 {
					t.Errorf("load balancer %d, was %d; %d reads, %d writes\n%s", after.ID, before.ID, reads, writes, l.log())
				}
				if after.Labels[lb.LabelCheck] != "kept" || after.Labels[lb.LabelCluster] != "lab" || after.PublicNet.IPv4.IP != before.PublicNet.IPv4.IP {
					t.Errorf("labels %v", after.Labels)
				}
			})
		})
	}
}

// Load balancers of others stay as they are, whatever says so and whatever a Service's author asks
// for, and when the Service goes.
func TestForeignLoadBalancersThroughTheAPI(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"the Hetzner controller's for another Service": {lb.LabelPeer: "another-service"},
		"Cluster API's":          {"caph-cluster-prod": "owned"},
		"Terraform's":            {"managed-by": "terraform"},
		"made by hand":           {},
		"given to somebody else": {"underlay.dev/adopt-cluster": "lab", "underlay.dev/adopt-namespace": "other", "underlay.dev/adopt-service": "000000000001"},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				svc := l.service("000000000001")
				l.converged(svc, l.nodes...)
				l.relabel(svc, labels)
				before, _ := l.sim.LoadBalancer(l.sim.LoadBalancers()[0].ID)
				svc.Annotations["underlay.dev/adopt"] = "true"
				o := l.converge(quiet(l.t.Context()), l.plan(svc, l.nodes...), hooks{})
				if n := len(o.Notes); n != 1 || o.Notes[0].Reason != lb.ReasonNotOwned || o.State.Exists() {
					t.Errorf("notes %v", o.Notes)
				}
				_, err := l.remove(quiet(l.t.Context()), l.plan(svc).Spec.Owner, belongings{Peers: true, Certificates: true})
				l.must(err)
				after, _ := l.sim.LoadBalancer(before.ID)
				if len(l.sim.LoadBalancers()) != 1 || l.shape(after) != l.shape(before) {
					t.Errorf("it was touched: %s\nwas %s", l.shape(after), l.shape(before))
				}
			})
		})
	}
}

// One bad target never stops the rest, and what is left undone is tried again.
func TestOneBadTargetThroughTheAPI(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		bad := l.nodes[2].DeepCopy()
		bad.Spec.ProviderID = "hcloud://999999"
		o := l.converge(quiet(l.t.Context()), l.plan(svc, append(l.nodes[3:], bad, l.nodes[0])...), hooks{})
		b := l.sim.LoadBalancers()[0]
		if len(b.Targets) != 3 || o.RetryTargets == 0 || len(o.Notes) != 1 || !strings.Contains(o.Notes[0].Text, "999999") {
			t.Errorf("%d targets, %v, notes %v", len(b.Targets), o.Transient, o.Notes)
		}
	})
}

// What a label selector that somebody added finds stays a target, whatever else changes, and takes
// its room. A server or an address that is no Node's goes, whoever added it.
func TestTargetsOfOthers(t *testing.T) {
	inLab(t, func(l *lab) {
		_, svc := l.scenarios()["creation of everything"]()
		b := l.converged(svc, l.nodes...)
		for _, body := range []string{
			`{"type":"ip","ip":{"ip":"` + dedicatedAddress + `"}}`,
			`{"type":"label_selector","label_selector":{"selector":"role=edge"}}`,
		} {
			l.post(fmt.Sprintf("/load_balancers/%d/actions/add_target", b.ID), body)
		}
		_, svc = l.scenarios()["change of everything"]()
		o := l.converge(quiet(l.t.Context()), l.plan(svc, l.nodes[:2]...), hooks{})
		b, _ = l.sim.LoadBalancer(b.ID)
		kinds := map[string]int{}
		for _, target := range b.Targets {
			kinds[target.Type]++
		}
		if o.Transient != nil || kinds["ip"] != 0 || kinds["label_selector"] != 1 || kinds["server"] != 2 || b.Name != "shop" || b.LoadBalancerType.Name != "lb21" {
			t.Errorf("targets %v, name %s, type %s, %v\n%s", kinds, b.Name, b.LoadBalancerType.Name, o.Transient, l.log())
		}
		// Another address in the network would drop such a target for good, if it lay there: that
		// waits.
		if b.PrivateNet[0].IP != "10.0.0.9" || len(o.Notes) != 1 || o.Notes[0].Reason != lb.ReasonImmutable {
			t.Errorf("address %s, notes %v", b.PrivateNet[0].IP, o.Notes)
		}
	})
}

// A certificate that the cloud could not obtain is tried again when its day has come, and then
// used.
func TestFailedCertificateThroughTheAPI(t *testing.T) {
	inLab(t, func(l *lab) {
		_, svc := l.scenarios()["creation of everything"]()
		l.wire.spoil(3, harm{before: func() { l.must(l.sim.Inject(hcloudsim.Fault{FailAction: "dns_zone_not_found"})) }})
		o := l.remembering(svc, memory{}, l.nodes...)
		again := l.remembering(svc, o.memory, l.nodes...)
		if len(again.Notes) != 1 || again.Notes[0].Reason != lb.ReasonCertificate || again.memory.Reissue.IsZero() {
			t.Fatalf("%v, notes %v, memory %+v\n%s", again.Transient, again.Notes, again.memory, l.log())
		}
		time.Sleep(25 * time.Hour)
		o = l.remembering(svc, again.memory, l.nodes...)
		if o.Transient != nil || len(o.Notes) != 0 || o.memory.text(svc.UID) != "" || len(o.State.Listeners) != 2 || len(l.certificates()) != 1 {
			t.Errorf("%v, notes %v, memory %q\n%s", o.Transient, o.Notes, o.memory.text(svc.UID), l.log())
		}
	})
}

// The load balancer of a Service that goes before it was taken over goes too; another Service's
// does not.
func TestRemoveWhatWasNotTakenOver(t *testing.T) {
	for uid, left := range map[string]int{"0a1b2c3d-0000-4000-8000-000000000001": 0, "another-service": 1} {
		inLab(t, func(l *lab) {
			svc := l.service("000000000001")
			l.converged(svc, l.nodes...)
			l.relabel(svc, map[string]string{lb.LabelPeer: uid})
			existed, err := l.remove(quiet(l.t.Context()), l.plan(svc).Spec.Owner, belongings{Peers: true})
			if n := len(l.sim.LoadBalancers()); err != nil || n != left || existed == (left == 1) {
				t.Errorf("%s: %d left, %v", uid, n, err)
			}
			if reads, _, _ := l.requests(); reads > 2 {
				t.Errorf("%d reads", reads)
			}
		})
	}
}
