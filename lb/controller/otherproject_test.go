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

// strange has another project answer from now on, as with its token in the Secret.
func (w *world) strange() {
	w.t.Helper()
	must(w.cloud.sim.Inject(hcloudsim.Fault{OtherProject: true, Times: -1}))
}

// homely ends that.
func (w *world) homely() { w.cloud.sim.ClearFaults() }

// expectNothing fails the test if the project that answers has a load balancer or a certificate
// beside those that are known.
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

// post makes something in the project that answers.
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

// shown is what a Service's status says, and whether it is held.
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

// A token of another project takes nothing from any Service: what its project lacks is not gone.
// Nothing is created there, and all goes on with the right token.
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
			inWorldWith(t, newCloud(), nodes(2), func(d *lb.Defaults) { d.Network = c.network }, func(w *world) {
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

// expectHealed fails the test unless, with the right token, Services have what they had, and those
// that came and went meanwhile are served and let go.
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

// The token may change between any two requests, also those of one reconciliation.
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

// changeToken has another project answer from a request on, and reports whether there was that one.
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

// lastNetwork is the ID of the newest network of the project that answers.
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

// Nor does a load balancer of another project become a Service's by its name.
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

// Agents go on letting load balancers reach pods, also those of Services that are not ours any more.
func TestPodsStayOpenWithTheTokenOfAnotherProject(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.create(podService())
		left := podingress.Ingress{Endpoints: []netip.AddrPort{netip.AddrPortFrom(podAt(1, 1).Address, 80)}}.String()
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

// Where no Node tells which servers are the cluster's, nobody doubts: before the first Node is
// initialized, and where all are dedicated servers. And what is really gone is made again.
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
