package lb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func httpsSpec(t *testing.T, annotations map[string]string) lb.Spec {
	t.Helper()
	svc, d := plain()
	svc.Annotations = map[string]string{hetzner + "protocol": "https"}
	for k, v := range annotations {
		svc.Annotations[hetzner+k] = v
	}
	return parse(t, svc, d)
}

func TestCertificatesByIDAndName(t *testing.T) {
	have := []lb.Certificate{{ID: 8, Name: "shop"}, {ID: 9, Name: "web"}}
	if s := httpsSpec(t, map[string]string{"http-certificates": "30,9"}); s.NeedsCertificates() || s.Listeners[0].HTTP.Certificates != "9,30" {
		t.Errorf("IDs alone need a look at certificates: %+v", s.Listeners[0].HTTP)
	}
	s := httpsSpec(t, map[string]string{"http-certificates": "web,30,shop"})
	got, ops, notes := s.Resolve(have)
	if !s.NeedsCertificates() || len(ops) != 0 || len(notes) != 0 || got.Listeners[1].HTTP.Certificates != "8,9,30" {
		t.Errorf("%q, ops %v, notes %v", got.Listeners[1].HTTP.Certificates, ops, notes)
	}
	_, _, notes = httpsSpec(t, map[string]string{"http-certificates": "web,lost,gone"}).Resolve(have)
	if len(notes) != 2 || notes[0].Value != "lost" || notes[1].Value != "gone" || notes[0].Grade != lb.Error {
		t.Errorf("names that nobody has: %v", notes)
	}
}

// A managed certificate is created when a Service needs it, replaced beside the old one when its
// domains change, and removed when no listener needs it.
func TestLifeOfAManagedCertificate(t *testing.T) {
	first := httpsSpec(t, map[string]string{"certificate-type": "managed", "http-managed-certificate-domains": "b.example.com,a.example.com"})
	_, ops, notes := first.Resolve([]lb.Certificate{{ID: 3, Name: "other", Managed: true, Domains: []string{"a.example.com", "b.example.com"}}})
	name := "ccm-managed-certificate-" + first.Owner.UID
	if len(notes) != 0 || fmt.Sprint(ops) != fmt.Sprintf("[obtain certificate %q for a.example.com, b.example.com]", name) {
		t.Fatalf("%v, notes %v", ops, notes)
	}
	made := ops[0].(lb.CreateCertificate)
	have := []lb.Certificate{{ID: 4, Name: name, Managed: true, Domains: []string{"b.example.com", "a.example.com"}, Labels: made.Certificate.Labels(made.Owner), Users: []int64{1}}}
	if have[0].Labels["hcloud-ccm/service-uid"] != first.Owner.UID {
		t.Errorf("the Hetzner controller would not find it: %v", have[0].Labels)
	}
	used, ops, _ := first.Resolve(have)
	if len(ops) != 0 || used.Listeners[0].HTTP.Certificates != "4" || len(lb.Surplus(used, have, 1)) != 0 {
		t.Errorf("it is there: %v, listeners %+v, surplus %v", ops, used.Listeners[0].HTTP, lb.Surplus(used, have, 1))
	}

	second := httpsSpec(t, map[string]string{"certificate-type": "managed", "http-managed-certificate-domains": "c.example.com", "http-managed-certificate-acme-staging": "true"})
	_, ops, _ = second.Resolve(have)
	made = ops[0].(lb.CreateCertificate)
	if made.Certificate.Name == name || !strings.HasPrefix(made.Certificate.Name, name+"-") || made.Certificate.Labels(made.Owner)["HC-Use-Staging-CA"] != "true" {
		t.Errorf("beside the old one: %+v", made)
	}
	have = append(have, lb.Certificate{ID: 5, Name: made.Certificate.Name, Managed: true, Domains: []string{"c.example.com"}, Labels: made.Certificate.Labels(made.Owner)})
	used, _, _ = second.Resolve(have)
	if got := fmt.Sprint(lb.Surplus(used, have, 1)); got != fmt.Sprintf("[delete certificate %q]", name) || used.Listeners[0].HTTP.Certificates != "5" {
		t.Errorf("replaced: %s, listeners %+v", got, used.Listeners[0].HTTP)
	}
	have[0].Users = []int64{1, 2}
	if ops := lb.Surplus(used, have, 1); len(ops) != 0 {
		t.Errorf("somebody else uses it: %v", ops)
	}
	have[0].Users = nil
	if n := len(lb.Surplus(lb.Spec{Owner: first.Owner}, have, 1)); n != 2 {
		t.Errorf("%d of 2 are removed with the Service", n)
	}
	for _, foreign := range []lb.Certificate{
		{ID: 6, Managed: true, Labels: lb.Owner{Cluster: "demo", UID: "other"}.Labels()},
		{ID: 7, Managed: true, Labels: lb.Owner{Cluster: "other", UID: first.Owner.UID}.Labels()},
		{ID: 8, Labels: first.Owner.Labels()}, // uploaded by a user
		{ID: 9, Managed: true, Labels: made.Certificate.Labels(lb.Owner{Cluster: "other", UID: first.Owner.UID})},
	} {
		if ops := lb.Surplus(lb.Spec{Owner: first.Owner}, []lb.Certificate{foreign}, 1); len(ops) != 0 {
			t.Errorf("%+v is not ours: %v", foreign, ops)
		}
	}
}

func TestCertificatesThatCannotBeUsed(t *testing.T) {
	s := httpsSpec(t, map[string]string{"certificate-type": "managed", "http-managed-certificate-domains": "a.example.com"})
	mine := lb.Certificate{ID: 4, Name: "x", Managed: true, Domains: []string{"a.example.com"}, Labels: map[string]string{lb.LabelPeer: s.Owner.UID}}
	if got, ops, notes := s.Resolve([]lb.Certificate{mine}); len(ops) != 0 || len(notes) != 0 || got.Listeners[0].HTTP.Certificates != "4" {
		t.Errorf("the peer's: %v, %v", ops, notes)
	}
	failed, pending := mine, mine
	failed.Failed, pending.Pending = "the zone is not there", true
	if _, ops, notes := s.Resolve([]lb.Certificate{failed}); fmt.Sprint(ops) != `[retry certificate "x"]` || len(notes) != 1 || !strings.Contains(notes[0].Text, "the zone is not there") {
		t.Errorf("failed: %v, %v", ops, notes)
	}
	if _, ops, notes := s.Resolve([]lb.Certificate{pending}); len(ops) != 0 || len(notes) != 1 ||
		notes[0].Reason != lb.ReasonCertificatePending {
		t.Errorf("pending: %v, %v", ops, notes)
	}
	mine.ID = 9
	if got, _, notes := s.Resolve([]lb.Certificate{failed, mine}); len(notes) != 0 || got.Listeners[0].HTTP.Certificates != "9" {
		t.Errorf("one of two works: %v, %+v", notes, got.Listeners[0].HTTP)
	}
}

// A redirect frees its port before another listener takes it.
func TestRedirectFreesItsPort(t *testing.T) {
	have := lb.State{ID: 1, Listeners: []lb.Listener{{Port: 443, Protocol: "https", HTTP: lb.HTTP{Redirect: true}}}}
	want := lb.Spec{Owner: owner, Listeners: []lb.Listener{{Port: 80, Protocol: "http"}, {Port: 443, Protocol: "https"}}}
	var order []string
	for _, op := range lb.Diff(want, have) {
		order = append(order, lb.Kind(op))
	}
	if got := strings.Join(order, " "); got != "set_labels update_listener add_listener" {
		t.Errorf("got %s", got)
	}
}
