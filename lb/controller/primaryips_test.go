package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// given returns the labels with which the project's owner gives a primary IP to default/web.
func given() map[string]string {
	return map[string]string{
		"underlay.dev/adopt-cluster": "demo", "underlay.dev/adopt-namespace": "default", "underlay.dev/adopt-service": "web",
	}
}

func (w *world) primaryIP(seed hcloudsim.PrimaryIPSeed) schema.PrimaryIP {
	w.t.Helper()
	made, err := w.cloud.sim.CreatePrimaryIP(seed)
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// webAt returns the Service web with a primary IP.
func webAt(ipv4 string) *corev1.Service {
	svc := service("web")
	svc.Annotations[lb.AnnotationPrimaryIPv4] = ipv4
	return svc
}

func (w *world) expectReads(what string, want int) {
	w.t.Helper()
	if reads, writes := w.cloud.counts(); reads != want || len(writes) > 0 {
		w.t.Errorf("%s: %d reads and changes %q, want %d reads", what, reads, writes, want)
	}
}

// looks returns the number of reads of load balancers, and of primary IPs, at rest.
func (w *world) looks() (balancers, addresses int) {
	w.later()
	w.cloud.sim.ResetRequests()
	w.later()
	for _, r := range w.cloud.sim.Requests() {
		switch {
		case strings.HasPrefix(r.Path, "/v1/primary_ips"):
			addresses++
		case r.Path == "/v1/load_balancers":
			balancers++
		}
	}
	return balancers, addresses
}

// A Service that is recreated gets its former address, with one request more than a new address
// takes, and none at rest.
func TestServiceCreatedAgainKeepsItsAddress(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.cloud.counts()
		w.create(service("other"))
		plain, _ := w.cloud.counts()
		ip := w.primaryIP(hcloudsim.PrimaryIPSeed{Name: "web", Labels: given(), Location: "hel1"})
		ip6 := w.primaryIP(hcloudsim.PrimaryIPSeed{Name: "My web", Type: "ipv6", Labels: given(), Location: "hel1"})
		svc := webAt("web")
		svc.Annotations[lb.AnnotationPrimaryIPv6] = "My web"
		w.create(svc)
		if reads, writes := w.cloud.counts(); reads != plain+1 || len(writes) != 1 {
			t.Errorf("a creation: %d reads and changes %q, want one read more than the %d for a new address", reads, writes, plain)
		}
		first := w.service("web")
		shown := ip.IP + " VIP, " + strings.TrimSuffix(ip6.IP, "/64") + "1 VIP"
		if got := ingress(first); !strings.HasPrefix(got, shown) || accepted(first) != "True Accepted" {
			t.Errorf("addresses %q, want %q; accepted %s", got, shown, accepted(first))
		}
		w.restart()
		w.expectReads("a restart", 1)
		if balancers, addresses := w.looks(); balancers == 0 || addresses != 0 {
			t.Errorf("%d regular looks at rest read primary IPs %d times", balancers, addresses)
		}

		w.delete("web")
		if got, there := w.cloud.sim.PrimaryIP(ip.ID); !there || got.AssigneeID != nil {
			t.Errorf("after the Service its primary IP is %+v", got)
		}
		if err := w.api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), "default", "web"); err != nil {
			t.Fatal(err)
		}
		w.settle()
		svc.UID = types.UID("another-uid")
		w.create(svc)
		if got := ingress(w.service("web")); !strings.HasPrefix(got, shown) {
			t.Errorf("created again: %q, want %q; accepted %s", got, shown, accepted(w.service("web")))
		}
		if made := w.cloud.all()[1]; made.Location != "hel1" {
			t.Errorf("created in %s, want it where its primary IPs are", made.Location)
		}
	})
}

// Without consent, or without the primary IP, no load balancer is created; after the remedy in the
// message, the next regular resync creates it.
func TestPrimaryIPThatMayNotBeHad(t *testing.T) {
	for name, c := range map[string]struct {
		before *hcloudsim.PrimaryIPSeed // nil: none
		says   string
		mend   func(w *world)
	}{
		"not given": {
			&hcloudsim.PrimaryIPSeed{Name: "web"}, "hcloud primary-ip add-label ",
			func(w *world) {
				all := w.cloud.sim.PrimaryIPs() // the node's precede it
				w.cloud.row("primary_ips", all[len(all)-1].ID, func(row map[string]any) { row["labels"] = given() })
			},
		},
		"unknown": {
			nil, "the project has no primary IP of this ID or name",
			func(w *world) { w.primaryIP(hcloudsim.PrimaryIPSeed{Name: "web", Labels: given()}) },
		},
		"of the other family": {
			&hcloudsim.PrimaryIPSeed{Name: "web", Type: "ipv6", Labels: given()}, "name it in underlay.dev/primary-ipv6",
			func(w *world) {
				w.edit("web", func(svc *corev1.Service) {
					svc.Annotations[lb.AnnotationPrimaryIPv4], svc.Annotations[lb.AnnotationPrimaryIPv6] = "", "web"
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(1), func(w *world) {
				if c.before != nil {
					w.primaryIP(*c.before)
				}
				w.create(webAt("web"))
				w.later()
				if got := accepted(w.service("web")); got != "False PrimaryIPUnusable" || len(w.cloud.all()) > 0 {
					t.Errorf("accepted %s with\n%s", got, w.cloud)
				}
				if events := w.message(); len(events) != 1 || !strings.Contains(events[0], c.says) {
					t.Errorf("Events %q, want one that says %q", events, c.says)
				}
				c.mend(w)
				w.later()
				if got := w.service("web"); accepted(got) != "True Accepted" || ingress(got) == "" {
					t.Errorf("afterwards: accepted %s, addresses %q", accepted(got), ingress(got))
				}
			})
		})
	}
}

// A primary IP of another load balancer is not taken, and is assigned soon after that load balancer
// is deleted.
func TestPrimaryIPInUse(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.defaultsFor("other", "web")
		ip := w.primaryIP(hcloudsim.PrimaryIPSeed{Name: "web"})
		other := webAt("web")
		other.Name, other.UID = "other", "other-uid"
		w.create(other)
		w.create(webAt("web"))
		if got := accepted(w.service("web")); got != "False PrimaryIPInUse" || len(w.cloud.all()) != 1 {
			t.Errorf("accepted %s with\n%s", got, w.cloud)
		}
		if events := strings.Join(w.message(), "\n"); !strings.Contains(events, "load balancer ") || !strings.Contains(events, " has this primary IP") {
			t.Errorf("Events:\n%s", events)
		}
		w.delete("other")
		time.Sleep(30 * time.Second) // the retries of the queue, long before the regular resync
		w.settle()
		if got := ingress(w.service("web")); !strings.HasPrefix(got, ip.IP) {
			t.Errorf("addresses %q, want %s; accepted %s", got, ip.IP, accepted(w.service("web")))
		}
	})
}

// defaultsFor gives the primary IP web to Services in the configuration.
func (w *world) defaultsFor(services ...string) {
	w.stop()
	for _, svc := range services {
		w.defaults.PrimaryIPs = append(w.defaults.PrimaryIPs, lb.GivenAddress{Name: "web", Namespace: "default", Service: svc})
	}
	w.start()
}

// An existing load balancer keeps its addresses and keeps working, and its Service's condition
// reports it.
func TestPrimaryIPForAnExistingLoadBalancer(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		w.primaryIP(hcloudsim.PrimaryIPSeed{Name: "web", Labels: given()})
		before := ingress(w.service("web"))
		w.cloud.counts()
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationPrimaryIPv4] = "web" })
		w.expectReads("another address", 2)
		if got := w.service("web"); accepted(got) != "False ImmutableField" || ingress(got) != before {
			t.Errorf("accepted %s, addresses %q, want %q", accepted(got), ingress(got), before)
		}
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30081 })
		if got := w.cloud.all(); len(got) != 1 || got[0].Listeners[0].DestinationPort != 30081 {
			t.Errorf("it does not follow its Service:\n%s", w.cloud)
		}
		if balancers, addresses := w.looks(); balancers == 0 || addresses != balancers {
			t.Errorf("%d regular looks at a contradiction read primary IPs %d times, want once each", balancers, addresses)
		}
		// An annotation that names the current address solves it.
		w.edit("web", func(svc *corev1.Service) {
			svc.Annotations[lb.AnnotationPrimaryIPv4] = w.cloud.sim.LoadBalancers()[0].Name
		})
		w.cloud.row("primary_ips", w.cloud.sim.LoadBalancers()[0].PublicNet.IPv4.ID, func(row map[string]any) {
			row["name"], row["auto_delete"] = w.cloud.all()[0].Name, false
		})
		w.later()
		if got := accepted(w.service("web")); got != "True Accepted" || len(w.cloud.all()) != 1 {
			t.Errorf("accepted %s", got)
		}
		if balancers, addresses := w.looks(); balancers == 0 || addresses != 0 {
			t.Errorf("%d regular looks at rest read primary IPs %d times", balancers, addresses)
		}
	})
}

// A primary IP that would be deleted with the load balancer causes a warning until that is
// disabled.
func TestPrimaryIPThatGoesWithTheLoadBalancer(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		ip := w.primaryIP(hcloudsim.PrimaryIPSeed{Name: "web", Labels: given(), AutoDelete: true})
		w.create(webAt("web"))
		withReport := func() bool {
			return strings.Contains(w.service("web").Status.Conditions[0].Message, "--auto-delete=false")
		}
		if got := w.service("web"); !strings.HasPrefix(ingress(got), ip.IP) || accepted(got) != "True Accepted" || !withReport() {
			t.Errorf("addresses %q, accepted %s, conditions %+v", ingress(got), accepted(got), got.Status.Conditions)
		}
		w.later()
		if events := w.message(); len(events) != 1 || !withReport() {
			t.Errorf("Events %q, want one", events)
		}
		w.cloud.row("primary_ips", ip.ID, func(row map[string]any) { row["auto_delete"] = false })
		w.later()
		if withReport() {
			t.Error("the warning stays")
		}
		if balancers, addresses := w.looks(); balancers == 0 || addresses != 0 {
			t.Errorf("%d regular looks at rest read primary IPs %d times", balancers, addresses)
		}
	})
}
