package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/lb"
)

// strange makes another project reply, as with its token in the Secret.
func (w *world) strange() {
	w.t.Helper()
	must(w.cloud.sim.Inject(hcloudsim.Fault{OtherProject: true, Times: -1}))
}

// homely makes the right project reply again.
func (w *world) homely() { w.cloud.sim.ClearFaults() }

// expectNothing fails the test if the replying project has more load balancers than those known, or
// a certificate.
func (w *world) expectNothing(known int) {
	w.t.Helper()
	balancers, err := w.cloud.client.All(context.Background())
	must(err)
	certificates, err := w.cloud.client.Certificates(context.Background())
	must(err)
	if len(balancers) != known || len(certificates) > 0 {
		w.t.Errorf("the other project has %d load balancers, want %d, and %d certificates", len(balancers), known, len(certificates))
	}
}

// post creates an object in the replying project.
func (w *world) post(path, body string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://cloud.invalid/v1/"+path, strings.NewReader(body))
	must(err)
	request.Header.Set("Authorization", "Bearer any")
	answer, err := w.cloud.sim.Transport().RoundTrip(request)
	must(err)
	must(answer.Body.Close())
	if answer.StatusCode != http.StatusCreated {
		w.t.Fatalf("%s: %s", path, answer.Status)
	}
	w.settle()
}

// shown returns a Service's condition, addresses and finalizers.
func (w *world) shown(name string) string {
	svc := w.service(name)
	return fmt.Sprintf("%s at %q, %s", accepted(svc), ingress(svc), svc.Finalizers)
}

func managedService(name string) *corev1.Service {
	svc := service(name)
	svc.Annotations[lb.HetznerPrefix+"protocol"] = "https"
	svc.Annotations[lb.HetznerPrefix+"certificate-type"] = "managed"
	svc.Annotations[lb.HetznerPrefix+"http-managed-certificate-domains"] = name + ".example.com"
	return svc
}

// A token of another project deletes nothing of any Service: an object that is missing in that
// project is not taken as deleted. Nothing is created there, and everything continues with the
// right token.
func TestTokenOfAnotherProject(t *testing.T) {
	for name, c := range map[string]struct {
		network   int64
		namesake  bool // the other project has a network of the same name
		restart   bool
		noTargets bool // no Node may be a target
	}{
		"network":                  {network: 7},
		"network and restart":      {network: 7, restart: true},
		"network of the same name": {network: 7, namesake: true},
		"no network":               {},
		"no network and restart":   {restart: true},
		"no targets":               {noTargets: true},
		"no targets, network":      {network: 7, namesake: true, noTargets: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorldWith(t, newCloud(), nodes(2), func(d *lb.Defaults) { d.Network = c.network },
				func(w *world) {
					var network atomic.Int64
					network.Store(c.network)
					w.network = network.Load
					w.restart()
					w.createAll(service("web"), service("leaves"), service("ends"), sharing("a", 1, 80), sharing("b", 2, 81), sharing("c", 3, 82))
					w.settle()
					for _, n := range []string{"node-1", "node-2"} {
						if c.noTargets {
							w.editNode(n, func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
						}
					}
					before, shown := w.cloud.String(), map[string]string{}
					for _, name := range []string{"web", "leaves", "ends", "a", "b", "c"} {
						if shown[name] = w.shown(name); ingress(w.service(name)) == "" {
							t.Fatalf("%s: %s", name, shown[name])
						}
					}

					w.strange()
					if c.namesake {
						w.post("networks", `{"name":"network-7","ip_range":"10.0.0.0/8","subnets":[{"type":"cloud","network_zone":"eu-central","ip_range":"10.0.0.0/16"}]}`)
						network.Store(w.cloud.lastNetwork(t))
					}
					if c.restart {
						w.restart()
					}
					w.later()
					w.createAll(service("fresh"), managedService("secure"), sharing("fresh-a", 1, 90), sharingOf("fresh-b", "other"))
					w.delete("leaves")
					w.edit("ends", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
					w.delete("c")
					for range 4 {
						w.later()
					}
					w.expectNothing(0)
					for name, was := range shown {
						if now := w.shown(name); now != was {
							t.Errorf("%s: %s, was %s", name, now, was)
						}
					}
					for _, name := range []string{"fresh", "secure", "fresh-a", "fresh-b"} {
						if svc := w.service(name); ingress(svc) != "" {
							t.Errorf("%s has addresses %s", name, ingress(svc))
						}
					}
					if message := strings.Join(w.message(), "\n"); !strings.Contains(message, "check that the token belongs to this cluster's project") {
						t.Errorf("Events %s", message)
					}

					w.homely()
					network.Store(c.network)
					if now := w.cloud.String(); now != before {
						t.Errorf("load balancers became\n%swere\n%s", now, before)
					}
					w.expectHealed(shown)
				})
		})
	}
}

// expectHealed fails the test unless, with the right token, Services are in their former state, and
// those that were created or deleted since are served or released.
func (w *world) expectHealed(shown map[string]string) {
	w.t.Helper()
	w.later()
	w.later()
	for _, name := range []string{"web", "a", "b"} {
		if now := w.shown(name); now != shown[name] {
			w.t.Errorf("in the end %s: %s, was %s", name, now, shown[name])
		}
	}
	for _, name := range []string{"fresh", "fresh-a", "fresh-b"} {
		if ingress(w.service(name)) == "" {
			w.t.Errorf("in the end %s: %s", name, w.shown(name))
		}
	}
	for _, name := range []string{"leaves", "ends", "c"} {
		if svc := w.service(name); len(svc.Finalizers) != 0 || ingress(svc) != "" {
			w.t.Errorf("in the end %s: %s", name, w.shown(name))
		}
	}
	if all := w.cloud.all(); len(all) != 5 { // web, edge, fresh, secure, other
		w.t.Errorf("in the end %d load balancers:\n%s", len(all), w.cloud)
	}
}

// The token may change between any two requests, also within one reconciliation.
func TestTokenChangesAtAnyMoment(t *testing.T) {
	enough := true
	for moment := int64(1); enough && !t.Failed(); moment++ {
		t.Run(fmt.Sprint(moment), func(t *testing.T) {
			project := newCloud()
			project.options.Latency = 20 * time.Millisecond
			inWorldWith(t, project, nodes(2), func(d *lb.Defaults) { d.Network = 0 }, func(w *world) {
				enough = w.changeToken(moment)
			})
		})
	}
}

// changeToken makes another project reply from the given request on, and reports whether there were
// that many requests.
func (w *world) changeToken(moment int64) bool {
	w.createAll(service("web"), service("leaves"), sharing("a", 1, 80), sharing("c", 3, 82), sharingOf("alone", "other"))
	w.settle()
	shown := w.shown("a")
	var sent atomic.Int64
	w.cloud.onSending(func() {
		if sent.Add(1) == moment {
			w.strange()
		}
	})
	w.createAll(service("fresh"))
	w.delete("leaves")
	w.delete("alone")
	w.delete("c")
	w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30081 })
	w.later()
	w.later()
	w.cloud.onSending(nil)
	strange := sent.Load() >= moment
	if strange {
		w.expectNothing(0)
	}
	w.homely()
	w.later()
	w.later()
	for _, name := range []string{"web", "fresh"} {
		if svc := w.service(name); accepted(svc) != "True Accepted" || ingress(svc) == "" {
			w.t.Errorf("in the end %s: %s", name, w.shown(name))
		}
	}
	if now := w.shown("a"); now != shown {
		w.t.Errorf("a: %s, was %s", now, shown)
	}
	for _, name := range []string{"leaves", "alone", "c"} {
		if svc := w.service(name); len(svc.Finalizers) != 0 {
			w.t.Errorf("in the end %s: %s", name, w.shown(name))
		}
	}
	if all := w.cloud.all(); len(all) != 3 { // web, edge, fresh
		w.t.Errorf("in the end %d load balancers:\n%s", len(all), w.shared())
	}
	return strange
}

func sharingOf(name, group string) *corev1.Service {
	svc := sharing(name, 4, 80)
	svc.Annotations[lb.AnnotationShared] = group
	return svc
}

// lastNetwork returns the ID of the newest network of the replying project.
func (c *cloud) lastNetwork(t *testing.T) (last int64) {
	var found struct {
		Networks []struct {
			ID int64 `json:"id"`
		} `json:"networks"`
	}
	c.get(t, "networks", &found)
	for _, n := range found.Networks {
		last = max(last, n.ID)
	}
	return last
}

// A load balancer of another project can't be adopted by its name either.
func TestNothingOfAnotherProjectIsAdopted(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.strange()
		w.post("load_balancers", `{"name":"web","load_balancer_type":"lb11","location":"fsn1","labels":{"underlay.dev/adopt-cluster":"demo","underlay.dev/adopt-namespace":"default","underlay.dev/adopt-service":"web"}}`)
		svc := service("web")
		svc.Annotations[lb.AnnotationName], svc.Annotations["underlay.dev/adopt"] = "web", "true"
		w.create(svc)
		w.later()
		w.expectNothing(1)
		if got := ingress(w.service("web")); got != "" {
			t.Errorf("addresses %q", got)
		}
		w.homely()
		w.later()
		if all := w.cloud.all(); len(all) != 1 || accepted(w.service("web")) != "True Accepted" {
			t.Errorf("%s\n%s", w.shown("web"), w.cloud)
		}
	})
}

// Agents keep pods open for load balancers, and annotations of missing Services are kept until the
// right project replies.
func TestPodsStayOpenWithTheTokenOfAnotherProject(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.create(podService())
		left := podingress.Ingress{
			Endpoints: []netip.AddrPort{netip.AddrPortFrom(podAt(1, 1).Address, 80)},
		}.String()
		w.editNode("node-2", func(n *corev1.Node) {
			n.Annotations = map[string]string{podingress.Annotation("gone"): left}
		})
		opened := w.openings()
		if strings.Count(opened, "\n") != 1 {
			t.Fatalf("opened:\n%s", opened)
		}
		w.strange()
		w.later()
		w.later()
		if now := w.openings(); now != opened {
			t.Errorf("opened:\n%s\nwas:\n%s", now, opened)
		}
		w.homely()
		w.later()
		if now := w.openings(); now != strings.Split(opened, "\n")[0] {
			t.Errorf("in the end opened:\n%s\nwas:\n%s", now, opened)
		}
	})
}

// Without a Node on a cloud server the project can't be verified: before the first Node is
// initialized, and if all are dedicated servers. A missing load balancer is recreated then.
func TestDoubtNeedsServers(t *testing.T) {
	joining := node("node-1", 1)
	joining.Spec.ProviderID = ""
	for name, objects := range map[string][]runtime.Object{
		"no Node": nil, "not initialized": {joining}, "dedicated": {bare(5, "10.1.0.5")}, "one of each": {bare(5, "10.1.0.5"), node("node-2", 2)},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), objects, func(w *world) {
				w.createAll(inNetwork("web"), inNetwork("leaves"), sharing("a", 1, 80))
				w.settle()
				shown := w.shown("web")
				if all := w.cloud.all(); len(all) != 3 || !strings.Contains(shown, "Accepted at \"") {
					t.Fatalf("%s\n%s", shown, w.cloud)
				}
				for _, have := range w.cloud.all() {
					must(w.cloud.client.Apply(context.Background(), have, lb.Delete{}))
				}
				w.delete("leaves")
				w.later()
				w.later()
				if all := w.cloud.all(); len(all) != 2 || len(w.service("leaves").Finalizers) != 0 {
					t.Errorf("%s\n%s", w.shown("leaves"), w.cloud)
				}
				if now := w.shown("web"); strings.Contains(now, `at ""`) {
					t.Errorf("web: %s", now)
				}
				w.requests()
				w.later()
				if reads, writes := w.requests(); reads > 2 || writes != 0 {
					t.Errorf("at rest %d reads, %d changes", reads, writes)
				}
			})
		})
	}
}
