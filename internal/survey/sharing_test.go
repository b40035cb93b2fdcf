package survey_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/lb"
)

// sharing is a healthy cluster with the Services default/web and default/mail, which share a load
// balancer that is as the CCM creates it.
func sharing(t *testing.T) *survey.Snapshot {
	t.Helper()
	s := balanced(t)
	web := s.Services[0]
	web.Annotations = map[string]string{lb.AnnotationShared: "edge"}
	mail := web.DeepCopy()
	mail.Name, mail.UID, mail.CreationTimestamp = "mail", types.UID("a1b2"), metav1.NewTime(now().Add(-time.Minute))
	mail.Spec.Ports = []corev1.ServicePort{{Port: 25, NodePort: 30025, Protocol: corev1.ProtocolTCP}}
	s.Services = []*corev1.Service{mail, web}
	s.LoadBalancers[0].Name = "" // so that the name is not taken
	spec := s.Balancings()[0].Spec
	b := &s.LoadBalancers[0]
	b.Name, b.Labels, b.Listeners = spec.Name, spec.Labels(), spec.Listeners
	b.Verdicts[25] = verdicts(spec.Targets, 3)
	return s
}

func TestSharedLoadBalancer(t *testing.T) {
	const targets = " node-0001=healthy node-0002=healthy node-0003=healthy"
	const at = ": shared-default.edge-0c83a1dc98235a54 (700), shared as default.edge [192.0.2.7,10.0.0.200]"
	const mail, web = "25>30025 http :10256/healthz" + targets, "80>30080 http :10256/healthz" + targets
	for _, c := range []struct {
		name   string
		change func(*survey.Snapshot)
		want   []string
		note   string
	}{
		{"as it should be", func(*survey.Snapshot) {}, []string{"default/mail" + at, mail, "default/web" + at, web}, ""},
		{
			"a port to be opened, and a type", func(s *survey.Snapshot) {
				s.Services[0].Spec.Ports[0].Port = 26
				s.LoadBalancers[0].Type = "lb21"
			},
			[]string{
				"default/mail" + at, mail, "plan: add listener 26 → 30025, http :10256/healthz every 10s, timeout 15s, 3 tries", "default/web" + at, web,
				"plan: set 7 labels", "plan: delete listener 25", "plan: change type to lb11",
				"plan: set 6 labels",
			},
			"",
		},
		{
			"a conflict", func(s *survey.Snapshot) { s.Services[0].Spec.Ports[0].Port = 80 },
			[]string{"default/mail" + at, mail, "default/web" + at, web, "plan: delete listener 25", "plan: set 5 labels"},
			"default/web, which is older",
		},
		{
			"one that may not share any more", func(s *survey.Snapshot) { s.Services[0].Annotations[lb.AnnotationShared] = "Edge" },
			[]string{"default/mail:  [192.0.2.7]", "default/web" + at, web},
			"Edge",
		},
		{
			"two of them", func(s *survey.Snapshot) {
				twin := s.LoadBalancers[0]
				twin.ID = 701
				s.LoadBalancers = append(s.LoadBalancers, twin)
			},
			[]string{"default/mail: –, shared as default.edge [192.0.2.7]", "default/web: –, shared as default.edge [192.0.2.7]"},
			"more than one load balancer",
		},
		{"all Services are gone", func(s *survey.Snapshot) { s.Services = nil }, []string{": shared-default.edge-0c83a1dc98235a54 (700) [192.0.2.7,10.0.0.200]", mail, web}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sharing(t)
			c.change(s)
			v, err := survey.LoadBalancersOf(s)
			if err != nil {
				t.Fatal(err)
			}
			expectTexts(t, "load balancers", balancerLines(v), c.want...)
			notes := slices.DeleteFunc(v.Notes, func(note string) bool { return strings.HasPrefix(note, "load balancer ") })
			if c.note == "" != (len(notes) == 0) || !strings.Contains(strings.Join(notes, "\n"), c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

func TestInspectAServiceThatShares(t *testing.T) {
	s := sharing(t)
	v, err := survey.InspectService(s, types.NamespacedName{Namespace: "default", Name: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	if shared := factOf(v, "load balancer"); !strings.HasSuffix(shared, ", shared as default.edge") || factOf(v, "listener") != "25 → 30025 tcp" {
		t.Errorf("%+v", rows(v, "facts"))
	}
}
