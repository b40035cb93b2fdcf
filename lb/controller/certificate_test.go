package controller_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

func https(svc *corev1.Service, annotations ...string) {
	svc.Annotations[lb.HetznerPrefix+"protocol"] = "https"
	for i := 0; i+1 < len(annotations); i += 2 {
		svc.Annotations[lb.HetznerPrefix+annotations[i]] = annotations[i+1]
	}
}

// managed creates the Service web with a managed certificate, and returns the certificate.
func (w *world) managed() lb.Certificate {
	w.t.Helper()
	svc := service("web")
	https(svc, "certificate-type", "managed", "http-managed-certificate-domains", "example.com")
	w.create(svc)
	all, err := w.cloud.Certificates(w.t.Context())
	if err != nil || len(all) != 1 {
		w.t.Fatalf("certificates %v: %v", all, err)
	}
	return all[0]
}

func (w *world) certificates() (names []string) {
	w.t.Helper()
	all, err := w.cloud.Certificates(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range all {
		names = append(names, strings.Join(c.Domains, "+"))
	}
	w.cloud.counts()
	return names
}

// TestManagedCertificate follows a managed certificate from its creation to its deletion, over a
// change of domains and a restart.
func TestManagedCertificate(t *testing.T) {
	const name = "ccm-managed-certificate-web-uid"
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		svc := service("web")
		https(svc, "certificate-type", "managed", "http-managed-certificate-domains", "example.com")
		w.create(svc)
		w.expect("creation", `obtain certificate "`+name+`" for example.com`, `create "awebuid" with 1 listeners and 1 targets`)
		if got := w.service("web"); !strings.Contains(ingress(got), "198.18.0.") || !strings.Contains(ingress(got), "Proxy") || accepted(got) != "True Accepted" {
			t.Errorf("addresses %q, accepted %s", ingress(got), accepted(got))
		}
		w.written()
		w.restart()
		if reads, writes := w.cloud.counts(); reads != 2 || len(writes) != 0 || w.written() != 0 {
			t.Errorf("a restart: %d reads, changes %q, want load balancers and certificates read once", reads, writes)
		}

		w.edit("web", func(svc *corev1.Service) { https(svc, "http-managed-certificate-domains", "example.com,example.org") })
		if _, writes := w.cloud.counts(); len(writes) != 3 || !strings.HasPrefix(writes[0], `obtain certificate "`+name+`-`) ||
			!strings.HasPrefix(writes[1], "update listener 80") || writes[2] != `delete certificate "`+name+`"` {
			t.Errorf("other domains: %q", writes)
		}
		if got := w.certificates(); len(got) != 1 || got[0] != "example.com+example.org" {
			t.Errorf("certificates %q", got)
		}

		w.cloud.addCertificate("mine", "example.net")
		w.edit("web", func(svc *corev1.Service) { https(svc, "certificate-type", "uploaded", "http-certificates", "mine") })
		if got := w.certificates(); len(got) != 1 || got[0] != "example.net" {
			t.Errorf("an uploaded one instead: certificates %q", got)
		}
		w.edit("web", func(svc *corev1.Service) { https(svc, "certificate-type", "managed") })
		w.delete("web")
		if got := w.certificates(); len(got) != 1 || len(w.cloud.all()) != 0 || len(w.service("web").Finalizers) != 0 {
			t.Errorf("after the Service: certificates %q\n%s", got, w.cloud)
		}
	})
}

// An unneeded certificate is removed although that failed at first, also by the next process; after
// that there are no more requests for certificates.
func TestManagedCertificateIsNotForgotten(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		svc := service("web")
		https(svc, "certificate-type", "managed", "http-managed-certificate-domains", "example.com")
		w.create(svc)
		w.cloud.setFault(func(op lb.Op) error {
			if _, ok := op.(lb.DeleteCertificate); ok {
				return errors.New("unreachable")
			}
			return nil
		})
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"protocol"] = "tcp" })
		if got := w.certificates(); len(got) != 1 {
			t.Errorf("certificates %q", got)
		}
		w.stop()
		w.cloud.setFault(nil)
		w.start()
		w.later()
		if got := w.certificates(); len(got) != 0 {
			t.Errorf("certificates %q are left", got)
		}
		w.restart()
		if reads, _ := w.cloud.counts(); reads != 1 {
			t.Errorf("%d reads at a restart, want 1", reads)
		}
	})
}

// A missing certificate changes nothing on the load balancer, is reported, and is used once it
// exists.
func TestCertificateThatIsNotThere(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		before := w.cloud.String()
		w.edit("web", func(svc *corev1.Service) { https(svc, "http-certificates", "mine") })
		if w.cloud.String() != before || accepted(w.service("web")) != "False InvalidField" {
			t.Errorf("accepted %s:\n%s", accepted(w.service("web")), w.cloud)
		}
		if events := strings.Join(w.message(), "\n"); !strings.Contains(events, `http-certificates="mine"`) {
			t.Errorf("Events:\n%s", events)
		}
		w.cloud.addCertificate("mine", "example.net")
		w.later()
		if got := w.cloud.all()[0].Listeners[0]; got.Protocol != "https" || got.HTTP.Certificates == "" || accepted(w.service("web")) != "True Accepted" {
			t.Errorf("uploaded: %+v, accepted %s", got, accepted(w.service("web")))
		}
	})
}

// A certificate that could not be obtained is retried at most once a day, also by another process.
func TestFailedCertificateIsTriedAgain(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		certificate := w.managed()
		w.cloud.failCertificate(certificate.ID, "the name does not lead here")
		w.cloud.setFault(func(op lb.Op) error {
			if _, retry := op.(lb.RetryCertificate); retry {
				return errors.New("the name does not lead here")
			}
			return nil
		})
		w.cloud.counts()
		for range 6 {
			time.Sleep(12*time.Hour - 2*time.Second)
			w.restart()
		}
		if _, writes := w.cloud.counts(); len(writes) < 2 || len(writes) > 7 || writes[0] != `retry certificate "`+certificate.Name+`"` {
			t.Errorf("in three days: %q", writes)
		}
		if got := w.service("web"); accepted(got) != "False CertificateUnusable" {
			t.Errorf("accepted %s", accepted(got))
		}
		w.cloud.setFault(nil)
		time.Sleep(25 * time.Hour)
		w.settle()
		if got := w.service("web"); accepted(got) != "True Accepted" {
			t.Errorf("accepted %s", accepted(got))
		}
	})
}

// A retry that the cloud accepts and that fails later counts as the day's.
func TestACertificateThatFailsLateIsTriedOnceADay(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		certificate := w.managed()
		w.cloud.counts()
		for range 72 {
			w.cloud.failCertificate(certificate.ID, "the name does not lead here")
			time.Sleep(time.Hour)
		}
		if _, writes := w.cloud.counts(); len(writes) < 2 || len(writes) > 4 {
			t.Errorf("in three days: %q", writes)
		}
	})
}

// Failing requests for certificates don't delay load balancers of other Services.
func TestUnreadableCertificatesDelayNoOtherService(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		for i := range 20 {
			svc := service(fmt.Sprint("tls-", i))
			w.cloud.addCertificate(svc.Name, "example.net")
			https(svc, "http-certificates", svc.Name)
			w.create(svc)
		}
		w.cloud.hideCertificates(errors.New("unreachable"))
		id := w.cloud.all()[0].ID
		w.cloud.change(id, func(s *lb.State) { s.Algorithm = lb.LeastConnections })
		w.cloud.counts()
		for looked := 0; looked == 0; looked, _ = w.cloud.counts() {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // long before any retry
		if s := w.cloud.all()[0]; s.ID != id || s.Algorithm != lb.RoundRobin {
			t.Errorf("not repaired:\n%s", w.cloud)
		}
	})
}

// The status of a load balancer that was taken over does not depend on its certificates.
func TestAddressesStayWhileCertificatesFail(t *testing.T) {
	found := peers("awebuid")
	found.IPv4, found.IPv6 = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")
	inWorld(t, newCloud(found), nodes(1), func(w *world) {
		svc := takenOver()
		svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		w.create(svc)
		before := ingress(w.service("web"))
		if !strings.Contains(before, "2001:db8::1") {
			t.Errorf("addresses %q", before)
		}
		w.edit("web", func(svc *corev1.Service) {
			https(svc, "http-certificates", "missing")
		})
		w.later()
		w.restart()
		if got := w.service("web"); accepted(got) != "False InvalidField" || strings.ReplaceAll(ingress(got), "Proxy", "VIP") != before {
			t.Errorf("accepted %s, addresses %q, were %q", accepted(got), ingress(got), before)
		}
	})
}
