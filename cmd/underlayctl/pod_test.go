package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/policy"
)

// twoPods are a database that only pods labelled web may reach at 5432, a pod with that label, and
// one without.
func twoPods() *policy.Index {
	x := policy.NewIndex("")
	x.SetNodes(map[string]policy.Node{"n": {PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}}})
	x.SetNamespace("shop", nil)
	for i, name := range []string{"db", "web", "other"} {
		host := string(rune('2' + i))
		x.SetPod(policy.Pod{
			Name: policy.Name{Namespace: "shop", Name: name}, Node: "n", Labels: map[string]string{"app": name},
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0." + host), netip.MustParseAddr("fd00::" + host)},
		})
	}
	app := func(name string) policy.Selector {
		return policy.Selector{{Key: "app", Operator: policy.In, Values: []string{name}}}
	}
	web := app("web")
	x.SetPolicy(policy.Policy{
		Name: policy.Name{Namespace: "shop", Name: "db"}, Pods: app("db"),
		Ingress: []policy.Allow{{
			Peers: []policy.Peer{{Pods: &web}},
			Ports: []policy.Port{{Protocol: policy.TCP, Number: 5432}, {Protocol: policy.TCP, Name: "nope"}},
		}},
	})
	return x
}

func TestInspectPod(t *testing.T) {
	for _, c := range []struct {
		pod  string
		q    question
		want []string // beginnings of the verdicts
	}{
		{"shop/db", question{from: "shop/web", port: "5432"}, []string{
			"allowed: 10.0.0.3 to 10.0.0.2, TCP 5432: no policy isolates shop/web for egress; allowed by shop/db, ingress rule 1",
			"allowed: fd00::3 to fd00::2, TCP 5432",
		}},
		{"shop/other", question{to: "shop/db", port: "5432"}, []string{
			"denied: 10.0.0.4 to 10.0.0.2, TCP 5432: no policy isolates shop/other for egress; no ingress rule of shop/db allows it",
			"denied: fd00::4 to fd00::2",
		}},
		{"shop/db", question{from: "192.0.2.1", port: "53/udp"}, []string{
			"denied: 192.0.2.1 to 10.0.0.2, UDP 53: egress of no pod; no ingress rule of shop/db allows it",
		}},
	} {
		v, err := inspectionOf(twoPods(), c.pod, c.q)
		if err != nil || !slices.EqualFunc(v.Lines, c.want, strings.HasPrefix) {
			t.Errorf("%s, %+v: %+v, %v; want %q", c.pod, c.q, v, err, c.want)
		}
	}
	v, err := inspectionOf(twoPods(), "shop/db", question{})
	if err != nil || len(v.Lines) > 0 || len(v.Notes) != 1 || len(v.Tables[0].Rows) != 2 {
		t.Fatalf("without a question: %+v, %v", v, err)
	}
	for i, want := range []string{"shop/db ingress shop/db", "shop/db egress none: everything is allowed"} {
		cells := v.Tables[0].Rows[i].Cells
		if got := cells[0].Text + " " + cells[1].Text + " " + cells[2].Text; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestInspectPodNamesMistakes(t *testing.T) {
	for _, c := range []struct {
		pod  string
		q    question
		want string
	}{
		{"db", question{}, "write NAMESPACE/NAME"},
		{"shop/gone", question{}, "has no address"},
		{"shop/db", question{from: "shop/web"}, "needs --port"},
		{"shop/db", question{port: "80"}, "needs --port, and --port one of them"},
		{"shop/db", question{from: "shop/web", port: "http"}, "is no port"},
		{"shop/db", question{from: "web", port: "80"}, "or an address"},
		{"shop/db", question{from: "shop/gone", port: "80"}, "no addresses of the same family"},
	} {
		if _, err := inspectionOf(twoPods(), c.pod, c.q); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %+v: %v, want %q", c.pod, c.q, err, c.want)
		}
	}
}
