package policy

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func labels(pairs ...string) map[string]string {
	l := map[string]string{}
	for _, p := range pairs {
		key, value, _ := strings.Cut(p, "=")
		l[key] = value
	}
	return l
}

func is(pair string) *Selector {
	key, value, _ := strings.Cut(pair, "=")
	return &Selector{{Key: key, Operator: In, Values: []string{value}}}
}

func onNode(node int, name string, host int, pairs ...string) Pod {
	return Pod{
		Name: Name{"shop", name}, Labels: labels(pairs...), Node: fmt.Sprint("n", node),
		Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", node, host))},
	}
}

// shop is a database on node n1 that only the shop's frontends may reach.
func shop() *Index {
	x := NewIndex("n1")
	nodes := map[string]Node{}
	for i := range 3 {
		cidr := netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i))
		nodes[fmt.Sprint("n", i)] = Node{PodCIDRs: []netip.Prefix{cidr}, Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.0.%d", i))}}
	}
	x.SetNodes(nodes)
	x.SetNamespace("shop", nil)
	db := onNode(1, "db", 2, "app=db")
	db.Ports = []NamedPort{{"sql", TCP, 5432}}
	x.SetPod(db)
	x.SetPod(onNode(1, "cache", 3, "app=cache"))
	x.SetPolicy(Policy{
		Name: Name{"shop", "db"}, Pods: *is("app=db"),
		Ingress: []Allow{{Peers: []Peer{{Pods: is("app=web")}}, Ports: []Port{{Protocol: TCP, Name: "sql"}}}},
	})
	return x
}

func conn(from, to string, port uint16) Connection {
	return Connection{netip.MustParseAddr(from), netip.MustParseAddr(to), TCP, port}
}

func TestAPodElsewhereChangesOnlyElements(t *testing.T) {
	x := shop()
	before := x.Ruleset()
	x.SetPod(onNode(2, "web", 9, "app=web"))
	after := x.Ruleset()
	if !reflect.DeepEqual(before.Pods, after.Pods) {
		t.Errorf("the chains were\n%+v\nand are\n%+v", before.Pods, after.Pods)
	}
	if len(before.Sets) != 1 || len(after.Sets) != 1 {
		t.Fatalf("sets were %v and are %v, want one", before.Sets, after.Sets)
	}
	for name, s := range after.Sets {
		if old := before.Sets[name]; len(old.Elements[0]) != 0 || len(s.Elements[0]) != 1 {
			t.Errorf("elements were %v and are %v", old.Elements, s.Elements)
		}
	}
	if c := conn("10.0.2.9", "10.0.1.2", 5432); before.Allows(c) || !after.Allows(c) {
		t.Errorf("allowed before: %t, after: %t", before.Allows(c), after.Allows(c))
	}
	x.SetPod(onNode(2, "other", 10, "app=other"))
	for name, s := range x.Ruleset().Sets {
		if &s.Elements[0][0] != &after.Sets[name].Elements[0][0] {
			t.Error("elements were copied for a pod that is no peer")
		}
	}
}

// TestAClaimOfAnotherNodesAddressOpensNothing: a kubelet reports the addresses of its pods.
func TestAClaimOfAnotherNodesAddressOpensNothing(t *testing.T) {
	x := shop()
	x.SetPod(onNode(2, "innocent", 9, "app=other"))
	thief := onNode(2, "thief", 9, "app=web")
	thief.Node, thief.Created = "n0", 99
	x.SetPod(thief)
	if c := conn("10.0.2.9", "10.0.1.2", 5432); x.Ruleset().Allows(c) {
		t.Errorf("%+v is allowed: %+v", c, x.Explain(c))
	}
	if held := x.Held(thief.Name); len(held) != 0 {
		t.Errorf("the pod is said to have %v", held)
	}
}

func TestUnknownPodsAreClosed(t *testing.T) {
	r := Ruleset{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}}
	for c, want := range map[Connection]bool{
		conn("10.0.1.2", "192.0.2.1", 80): false,
		conn("192.0.2.1", "10.0.1.2", 80): false,
		conn("10.0.2.2", "192.0.2.1", 80): true,
	} {
		if got := r.Allows(c); got != want {
			t.Errorf("%+v is allowed: %t, want %t", c, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	x := shop()
	x.SetPod(onNode(2, "web", 9, "app=web"))
	db := Side{Pod: Name{"shop", "db"}, Policies: []Name{{"shop", "db"}}}
	open := db
	open.By = []RuleName{{Name{"shop", "db"}, Ingress, 0}}
	web, cache := Side{Pod: Name{"shop", "web"}}, Side{Pod: Name{"shop", "cache"}}
	for _, c := range []struct {
		Connection
		want Explanation
	}{
		{conn("10.0.2.9", "10.0.1.2", 5432), Explanation{Allowed: true, Egress: web, Ingress: open}},
		{conn("10.0.2.9", "10.0.1.2", 80), Explanation{Egress: web, Ingress: db}},
		{conn("192.0.2.1", "10.0.1.2", 5432), Explanation{Ingress: db}},
		{conn("10.0.1.2", "10.0.1.3", 80), Explanation{Allowed: true, Egress: Side{Pod: db.Pod}, Ingress: cache}},
		{conn("10.0.1.2", "10.0.1.2", 80), Explanation{Allowed: true, Note: "a pod reaches itself"}},
		{conn("192.168.0.1", "10.0.1.2", 80), Explanation{Allowed: true, Note: "a node reaches its pods: n1"}},
		{conn("10.0.1.2", "192.168.0.1", 80), Explanation{Allowed: true, Note: "a pod reaches its node: n1"}},
		{conn("192.168.0.2", "10.0.1.2", 80), Explanation{Ingress: db}},
	} {
		if got := x.Explain(c.Connection); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v is explained as\n%+v, want\n%+v", c.Connection, got, c.want)
		}
	}
	if got := open.By[0].String(); got != "shop/db, ingress rule 1" {
		t.Errorf("the rule is named %q", got)
	}
}

func TestWarnings(t *testing.T) {
	x := shop()
	x.SetPod(onNode(2, "web", 9, "app=web"))
	if got := x.Warnings(); len(got) != 0 {
		t.Errorf("warnings where nothing is wrong: %v", got)
	}
	x.SetPolicy(Policy{
		Name: Name{"shop", "wrong"}, Pods: *is("app=db"),
		Ingress: []Allow{{
			Peers: []Peer{{Pods: is("app=wbe")}},
			Ports: []Port{{Protocol: TCP, Name: "sqll"}, {Protocol: UDP, Name: "sql"}, {Protocol: TCP, End: 90}},
		}},
	})
	x.SetPolicy(Policy{Name: Name{"shop", "idle"}, Pods: *is("app=nothing")})
	var got []string
	for _, w := range x.Warnings() {
		got = append(got, w.Policy.Name+": "+w.Text)
	}
	want := []string{
		"idle: podSelector matches no pod",
		"wrong: ingress rule 1: a podSelector matches no pod",
		"wrong: ingress rule 1: endPort 90 has no effect",
		`wrong: ingress rule 1: no pod that it could mean has a TCP port named "sqll"`,
		`wrong: ingress rule 1: no pod that it could mean has a UDP port named "sql"`,
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("warnings are %q, want %q", got, want)
	}
}

func TestSubtract(t *testing.T) {
	p := netip.MustParsePrefix
	for _, c := range []struct {
		block  string
		except []netip.Prefix
		want   string
	}{
		{"10.0.0.0/8", nil, "[10.0.0.0/8]"},
		{"10.0.0.0/30", []netip.Prefix{p("10.0.0.2/32")}, "[10.0.0.0/31 10.0.0.3/32]"},
		{"10.0.0.0/30", []netip.Prefix{p("10.0.0.0/30")}, "[]"},
		{"10.0.0.0/30", []netip.Prefix{p("10.0.0.0/31"), p("10.0.0.2/31")}, "[]"},
		{"fd00::/126", []netip.Prefix{p("fd00::1/128")}, "[fd00::/128 fd00::2/127]"},
	} {
		if got := fmt.Sprint(subtract(p(c.block), c.except)); got != c.want {
			t.Errorf("%s without %v is %s, want %s", c.block, c.except, got, c.want)
		}
	}
}
