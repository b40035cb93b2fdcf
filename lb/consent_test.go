package lb_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// handed returns the labels with which a project's owner gives a load balancer to shop/web of demo.
func handed() map[string]string {
	return map[string]string{
		"underlay.dev/adopt-cluster": "demo", "underlay.dev/adopt-namespace": "shop", "underlay.dev/adopt-service": "web",
	}
}

// A Service's author can't take a load balancer that the project's owner didn't give, whichever
// controller created it.
func TestAdoptionTakesConsentFromBothSides(t *testing.T) {
	with := func(labels map[string]string, name, value string) map[string]string {
		labels = maps.Clone(labels)
		labels[name] = value
		return labels
	}
	without := func(name string) map[string]string {
		labels := handed()
		delete(labels, name)
		return labels
	}
	listed := []lb.Adoptable{{Name: "web", Namespace: "shop", Service: "web"}}
	for _, c := range []struct {
		name   string
		labels map[string]string
		list   []lb.Adoptable
		silent bool // the Service has no annotation
		taken  bool
		says   string // a part of the error
	}{
		{name: "made by hand", says: "hcloud load-balancer add-label 5 underlay.dev/adopt-cluster=demo underlay.dev/adopt-namespace=shop underlay.dev/adopt-service=web"},
		{name: "made by Cluster API", labels: map[string]string{"caph-cluster-prod": "owned"}, says: "add-label 5"},
		{name: "made by Terraform", labels: map[string]string{"managed-by": "terraform"}, says: "add-label 5"},
		{name: "given by labels", labels: handed(), taken: true},
		{name: "given by labels, beside others", labels: with(handed(), "managed-by", "terraform"), taken: true},
		{name: "given, not asked for", labels: handed(), silent: true, says: "to make it this Service's, set the annotation underlay.dev/adopt to true"},
		{name: "neither", silent: true, says: "adopt-service=web\" and set the annotation underlay.dev/adopt to true"},
		{name: "given to another cluster", labels: with(handed(), "underlay.dev/adopt-cluster", "prod"), says: "add-label"},
		{name: "given to another namespace", labels: with(handed(), "underlay.dev/adopt-namespace", "other"), says: "add-label"},
		{name: "given to another Service", labels: with(handed(), "underlay.dev/adopt-service", "other"), says: "add-label"},
		{name: "without a cluster", labels: without("underlay.dev/adopt-cluster"), says: "add-label"},
		{name: "without a namespace", labels: without("underlay.dev/adopt-namespace"), says: "add-label"},
		{name: "without a Service", labels: without("underlay.dev/adopt-service"), says: "add-label"},
		{name: "given, and another Service's", labels: with(handed(), "underlay.dev/svc-u2", ""), says: "its label underlay.dev/svc-u2 says so"},
		{name: "given, and the peer's for another Service", labels: with(handed(), lb.LabelPeer, "u2"), says: "its label hcloud-ccm/service-uid says so"},
		{name: "given by the configuration", list: listed, taken: true},
		{name: "given by the configuration, not asked for", list: listed, silent: true, says: "set the annotation"},
		{name: "given by the configuration to another namespace", list: []lb.Adoptable{{Name: "web", Namespace: "other", Service: "web"}}, says: "add-label"},
		{name: "given by the configuration to another Service", list: []lb.Adoptable{{Name: "web", Namespace: "shop", Service: "api"}}, says: "add-label"},
		{name: "another one given by the configuration", list: []lb.Adoptable{{Name: "api", Namespace: "shop", Service: "web"}}, says: "add-label"},
		{name: "given by the configuration, and another Service's", labels: map[string]string{"underlay.dev/svc-u2": ""}, list: listed, says: "its label"},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc, d := plain()
			svc.Namespace, svc.Name, d.Adoptable = "shop", "web", c.list
			svc.Annotations = map[string]string{lb.AnnotationName: "web", "underlay.dev/adopt": fmt.Sprint(!c.silent)}
			have := lb.State{ID: 5, Name: "web", Labels: c.labels}
			got, err := lb.Claim(parse(t, svc, d), []lb.State{have})
			switch {
			case c.taken && (err != nil || got.ID != 5):
				t.Errorf("not taken: %v", err)
			case !c.taken &&
				(!errors.Is(err, lb.ErrNotOwned) || got.Exists() || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got load balancer %d and %v, want a refusal that says %q", got.ID, err, c.says)
			}
		})
	}
}

// The labels in the command of a refusal satisfy the cloud's rules with all names, and are
// sufficient.
func TestTheCommandOfARefusalIsEnough(t *testing.T) {
	svc, d := plain()
	d.Cluster, svc.Namespace, svc.Name = strings.Repeat("c", 63), strings.Repeat("n", 63), strings.Repeat("s", 63)
	svc.Annotations = map[string]string{lb.AnnotationName: "web", "underlay.dev/adopt": "true"}
	have := lb.State{ID: 5, Name: "web", Labels: map[string]string{}}
	_, err := lb.Claim(parse(t, svc, d), []lb.State{have})
	if err == nil {
		t.Fatal("taken without consent")
	}
	if n := len("taking over: " + err.Error()); n > 500 {
		t.Errorf("the refusal has %d characters, a note has room for 500", n)
	}
	_, command, _ := strings.Cut(err.Error(), `"hcloud load-balancer add-label 5 `)
	command, _, _ = strings.Cut(command, `"`)
	for label := range strings.FieldsSeq(command) {
		key, value, _ := strings.Cut(label, "=")
		if len(value) == 0 || len(value) > 63 {
			t.Errorf("%s has %d characters, the cloud takes 63", key, len(value))
		}
		have.Labels[key] = value
	}
	if got, err := lb.Claim(parse(t, svc, d), []lb.State{have}); got.ID != 5 {
		t.Errorf("with what was asked for: %v", err)
	}
}

// With certificates: labelled, a namespace can use certificates that are labelled for it, also by
// ID, and its own managed certificates.
func TestCertificatesLabelledForANamespace(t *testing.T) {
	have := []lb.Certificate{
		{ID: 1, Name: "bare"},
		{ID: 2, Name: "one", Labels: map[string]string{"underlay.dev/namespaces": "shop"}},
		{ID: 3, Name: "several", Labels: map[string]string{"underlay.dev/namespaces": "blog.shop"}},
		{ID: 4, Name: "others", Labels: map[string]string{"underlay.dev/namespaces": "workshop.shops"}},
	}
	for ref, says := range map[string]string{
		"one": "", "several": "", "2": "", "3": "",
		"bare":   `run "hcloud certificate add-label 1 underlay.dev/namespaces=shop"`,
		"1":      `run "hcloud certificate add-label 1 underlay.dev/namespaces=shop"`,
		"others": `add-label 4 underlay.dev/namespaces=shop"`,
		"99":     "no certificate has this ID", "lost": "no certificate has this name",
	} {
		svc, d := plain()
		svc.Namespace, d.Certificates = "shop", lb.CertificatesLabelled
		svc.Annotations = map[string]string{hetzner + "protocol": "https", hetzner + "http-certificates": ref}
		spec := parse(t, svc, d)
		if !spec.NeedsCertificates() || spec.Listeners[0].HTTP.Certificates != "" {
			t.Errorf("%s: used without a look at the certificates: %+v", ref, spec.Listeners[0].HTTP)
		}
		got, _, notes := spec.Resolve(have)
		switch {
		case says == "" && (len(notes) != 0 || got.Listeners[0].HTTP.Certificates == ""):
			t.Errorf("%s: refused: %v", ref, notes)
		case says != "" && (len(notes) != 1 || notes[0].Value != ref || notes[0].Grade != lb.Error || !strings.Contains(notes[0].Text, says)):
			t.Errorf("%s: notes %v, want one that says %q", ref, notes, says)
		case says != "" && slices.ContainsFunc(notes, func(n lb.Note) bool { return strings.Contains(n.Text, "workshop") }):
			t.Errorf("%s: tells one namespace of others: %v", ref, notes)
		}
		if d.Certificates = lb.CertificatesAny; parse(t, svc, d).NeedsCertificates() == (ref[0] <= '9') {
			t.Errorf("%s: any certificate may be named, and IDs need no look", ref)
		}
	}

	svc, d := plain()
	svc.Namespace, d.Certificates = "shop", lb.CertificatesLabelled
	svc.Annotations = map[string]string{
		hetzner + "protocol": "https", hetzner + "certificate-type": "managed", hetzner + "http-managed-certificate-domains": "a.example.com",
	}
	spec := parse(t, svc, d)
	mine := lb.Certificate{ID: 7, Managed: true, Domains: []string{"a.example.com"}, Labels: spec.Owner.Labels()}
	if got, ops, notes := spec.Resolve([]lb.Certificate{mine}); len(ops) != 0 || len(notes) != 0 || got.Listeners[0].HTTP.Certificates != "7" {
		t.Errorf("its own managed certificate: %v, %v", ops, notes)
	}
}
