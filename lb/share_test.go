package lb_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func TestGroup(t *testing.T) {
	long := strings.Repeat("n", 63)
	listed := []lb.SharedName{{Name: "edge", Namespaces: []string{"shop", "blog"}}}
	for _, c := range []struct{ namespace, name, group, refused string }{
		{namespace: "shop"},
		{namespace: "shop", name: "own", group: "shop.own"},
		{namespace: "blog", name: "own", group: "blog.own"},
		{namespace: "shop", name: "edge", group: "edge"},
		{namespace: "blog", name: "edge", group: "edge"},
		{namespace: "other", name: "edge", refused: "loadBalancers.shared"},
		{namespace: "shop", name: "Edge", refused: "lower-case"},
		{namespace: "shop", name: "a.b", refused: "lower-case"},
		{namespace: "shop", name: "-a", refused: "begins and ends"},
		{namespace: "shop", name: long + "n", refused: "63"},
		{namespace: long, name: long, group: strings.Repeat("n", 22) + "." + strings.Repeat("n", 22) + ".45944f0630e02dec"},
	} {
		group, err := lb.Group(c.namespace, c.name, listed)
		if group != c.group || (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) || len(group) > 63 {
			t.Errorf("%s/%s: got %q, %v; want %q, %q", c.namespace, c.name, group, err, c.group, c.refused)
		}
	}
	one, _ := lb.Group(long, long, nil)
	other, _ := lb.Group(long, long[1:]+"m", nil)
	if one == other {
		t.Error("two names that are cut to the same are one group")
	}
}

func TestSharedIsRefused(t *testing.T) {
	for _, c := range []struct{ namespace, name, with, want string }{
		{"shop", "edge", lb.AnnotationTargets + "=pods", lb.AnnotationShared + `="edge": the targets of a load balancer that is shared are nodes: remove this, or underlay.dev/targets`},
		{"shop", "edge", lb.AnnotationPrimaryIPv4 + "=web", lb.AnnotationShared + `="edge": a primary IP is given to one Service: remove this, or underlay.dev/primary-ipv4`},
		{"shop", "edge", lb.AnnotationPrimaryIPv6 + "=web", lb.AnnotationShared + `="edge": a primary IP is given to one Service: remove this, or underlay.dev/primary-ipv6`},
		{"shop", "edge", lb.OwnPrefix + "adopt=true", lb.AnnotationShared + `="edge": a load balancer with another owner cannot be shared`},
		{"blog", "edge", "", lb.AnnotationShared + `="edge": the configuration gives this name to other namespaces`},
	} {
		svc, d := plain()
		d.Shared = []lb.SharedName{{Name: "edge", Namespaces: []string{"shop"}}}
		svc.Namespace, svc.Annotations = c.namespace, map[string]string{lb.AnnotationShared: c.name}
		if annotation, value, ok := strings.Cut(c.with, "="); ok {
			svc.Annotations[annotation] = value
		}
		if _, _, err := lb.Parse(svc, d); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// needsHTTP returns a Service in namespace shop that shares a load balancer, with these TCP ports.
func needsHTTP(t *testing.T, name string, annotations map[string]string, ports ...int) lb.Member {
	t.Helper()
	svc := lb.Service{Namespace: "shop", Name: name, UID: name, Annotations: map[string]string{lb.AnnotationShared: "edge"}}
	maps.Copy(svc.Annotations, annotations)
	for _, p := range ports {
		svc.Ports = append(svc.Ports, lb.Port{Name: fmt.Sprint("p", p), Number: p, Protocol: "TCP", NodePort: 30000 + p})
	}
	spec := parse(t, svc, lb.Defaults{Cluster: "demo", Network: 7, Location: "fsn1"})
	return lb.Member{Service: svc, Spec: spec, Parsed: true, Nodes: nodesOf(upTo(3))}
}

var group = lb.GroupOwner("demo", "shop.edge")

// merged returns the plan for the group's Services.
func merged(have lb.State, members ...lb.Member) lb.Plan {
	return lb.Input{Owner: group, Members: members, Have: have}.Plan()
}

// shown returns each Service's part of a load balancer.
func shown(sharers []lb.Member, parts []lb.Part) string {
	var b strings.Builder
	for i, p := range parts {
		fmt.Fprintf(&b, "%s:", sharers[i].Spec.Owner.UID)
		for _, l := range p.Listeners {
			fmt.Fprintf(&b, " %d", l.Port)
		}
		open := lb.ByPort(p.Listeners)
		for _, l := range sharers[i].Spec.Listeners {
			if _, ok := open[l.Port]; !ok && sharers[i].Standing == lb.Wanted {
				fmt.Fprintf(&b, " -%d", l.Port)
			}
		}
		for _, n := range p.Notes {
			fmt.Fprintf(&b, " %s(%d,%s=%s)", n.Reason, n.Grade, n.Field[strings.LastIndexAny(n.Field, "/.")+1:], n.Value)
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func hetz(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[hetzner+pairs[i]] = pairs[i+1]
	}
	return m
}

func TestShare(t *testing.T) {
	as := func(s lb.Member, standing lb.Standing) lb.Member { s.Standing = standing; return s }
	on := func(s lb.Member, servers ...int64) lb.Member { s.Nodes = nodesOf(servers); return s }
	barred := func(s lb.Member) lb.Member { s.Spec.Barred = []lb.Note{{Grade: lb.Error, Reason: "Barred"}}; return s }
	unread := func(name string) lb.Member {
		m := needsHTTP(t, name, nil, 80)
		m.Standing, m.Parsed = lb.Frozen, false
		m.Spec = lb.Spec{Owner: m.Spec.Owner, Subject: lb.Subject{Namespace: "shop", Service: name}}
		return m
	}
	moved := func(s lb.Member) lb.Member { s.Service.Ports[0].NodePort = 31080; return s }
	member := func(name string, annotations map[string]string, ports ...int) lb.Member {
		return needsHTTP(t, name, annotations, ports...)
	}
	https := func(certificates, redirect string) map[string]string {
		return hetz("protocol", "https", "http-certificates", certificates, "http-redirect-http", redirect)
	}
	many := func(n int) (ids string) {
		for i := range n {
			ids += fmt.Sprint(",", i+1)
		}
		return ids[1:]
	}
	for _, c := range []struct {
		name    string
		before  []lb.Member // the Services of the existing load balancer
		sharers []lb.Member
		want    string
		also    func(lb.Spec) bool
	}{
		{name: "different ports", sharers: []lb.Member{member("a", nil, 80), member("b", nil, 81, 82)}, want: "a: 80; b: 81 82"},
		{
			name: "the same port", sharers: []lb.Member{member("a", nil, 80), member("b", nil, 80, 81)},
			want: "a: 80 PortConflict(0,ports=80/TCP); b: 81 -80 PortConflict(1,ports=80/TCP)",
		},
		{
			name: "an older Service comes for a port", before: []lb.Member{member("b", nil, 80)}, sharers: []lb.Member{member("a", nil, 80), member("b", nil, 80)},
			want: "a: 80 PortConflict(0,ports=80/TCP); b: -80 PortConflict(1,ports=80/TCP)",
			also: func(s lb.Spec) bool { return s.PortOwners[80] == "a" },
		},
		{
			name: "a redirect takes port 80", sharers: []lb.Member{member("a", https("1", "true"), 443), member("b", nil, 80)},
			want: "a: 443 PortConflict(0,ports=80/TCP); b: -80 PortConflict(1,ports=80/TCP)",
			also: func(s lb.Spec) bool { return s.PortOwners[80] == "a" },
		},
		{
			name: "a redirect finds port 80 taken", sharers: []lb.Member{member("a", nil, 80), member("b", https("1", "true"), 443)},
			want: "a: 80 PortConflict(0,ports=80/TCP, for the redirect); b: 443 PortConflict(1,ports=80/TCP, for the redirect)",
			also: func(s lb.Spec) bool { return !s.Listeners[1].HTTP.Redirect },
		},
		{
			name: "the oldest that sets decides", sharers: []lb.Member{
				member("a", nil, 80), member("b", hetz("type", "lb21", "name", "front"), 81), member("c", hetz("type", "lb31", "name", "front"), 82),
			},
			want: "a: 80; b: 81; c: 82 FieldWithoutEffect(0,type=lb31)",
			also: func(s lb.Spec) bool { return s.Type == "lb21" && s.Name == "front" },
		},
		{
			name: "no room for ports", sharers: []lb.Member{member("a", nil, 80), member("b", nil, 81, 82, 83, 84, 85)},
			want: "a: 80; b: 81 82 83 84 -85 NoRoomForPort(1,ports=85/TCP)",
		},
		{
			name: "an older one makes room for itself", before: []lb.Member{member("b", nil, 81, 82, 83, 84, 85)}, sharers: []lb.Member{member("a", nil, 80), member("b", nil, 81, 82, 83, 84, 85)},
			want: "a: 80; b: 81 82 83 84 -85 NoRoomForPort(1,ports=85/TCP)",
		},
		{
			name: "no room for certificates", sharers: []lb.Member{member("a", https(many(9), ""), 80), member("b", https("9,10", ""), 81), member("c", https("11", ""), 82)},
			want: "a: 80; b: 81; c: -82 NoRoomForPort(1,ports=82/TCP)",
		},
		{
			name: "too small a type is not taken", before: []lb.Member{member("a", hetz("type", "lb21"), 80), member("b", nil, 81, 82, 83, 84, 85)},
			sharers: []lb.Member{member("a", hetz("type", "lb11"), 80), member("b", nil, 81, 82, 83, 84, 85)},
			want:    "a: 80 InvalidField(1,type=lb11); b: 81 82 83 84 85", also: func(s lb.Spec) bool { return s.Type == "lb21" },
		},
		{
			name: "nor one that nobody asks for", before: []lb.Member{member("a", hetz("type", "lb21"), 80), member("b", nil, 81, 82, 83, 84, 85, 86)},
			sharers: []lb.Member{member("b", nil, 81, 82, 83, 84, 85, 86)},
			want:    "b: 81 82 83 84 85 86 InvalidField(0,type=lb11)", also: func(s lb.Spec) bool { return s.Type == "lb21" },
		},
		{
			name: "a smaller type that suffices", before: []lb.Member{member("a", hetz("type", "lb21"), 80)}, sharers: []lb.Member{member("a", nil, 80)},
			want: "a: 80", also: func(s lb.Spec) bool { return s.Type == "lb11" },
		},
		{
			name: "one that is refused keeps its ports, and nothing else", before: []lb.Member{member("a", nil, 80), member("b", nil, 81)},
			sharers: []lb.Member{unread("a"), member("b", nil, 81, 82)}, want: "a: 80 LoadBalancerHeld(0,=); b: 81 82",
			also: func(s lb.Spec) bool { return slices.Equal(s.Sharers, []string{"a", "b"}) },
		},
		{
			name: "one that is refused and never shared", before: []lb.Member{member("b", nil, 81)}, sharers: []lb.Member{unread("a"), member("b", nil, 81)},
			want: "a:; b: 81", also: func(s lb.Spec) bool { return slices.Equal(s.Sharers, []string{"b"}) },
		},
		{
			name: "what one that is refused decided stays", before: []lb.Member{member("a", hetz("type", "lb21", "name", "front"), 80), member("b", nil, 81)},
			sharers: []lb.Member{unread("a"), member("b", hetz("type", "lb31"), 81)}, want: "a: 80 LoadBalancerHeld(0,=); b: 81 FieldWithoutEffect(0,type=lb31)",
			also: func(s lb.Spec) bool { return s.Type == "lb21" && s.Name == "front" },
		},
		{
			name: "all are refused", before: []lb.Member{member("a", hetz("type", "lb21"), 80)}, sharers: []lb.Member{unread("a")}, want: "a: 80 LoadBalancerHeld(0,=)",
			also: func(s lb.Spec) bool { return s.Type == "lb21" && s.Network == 7 && s.Algorithm == lb.RoundRobin },
		},
		{
			name: "one that is refused follows its node ports, and closes with them", before: []lb.Member{member("a", nil, 80, 81)},
			sharers: []lb.Member{moved(unread("a"))}, want: "a: 80 LoadBalancerHeld(0,=)",
			also: func(s lb.Spec) bool {
				return s.Listeners[0].DestinationPort == 31080 && len(s.PortOwners) == 1
			},
		},
		{
			name: "one that is held decides and opens nothing", before: []lb.Member{member("a", nil, 80)},
			sharers: []lb.Member{as(member("a", hetz("type", "lb21"), 80, 90), lb.Frozen), member("b", nil, 90)}, want: "a: 80; b: 90",
			also: func(s lb.Spec) bool { return s.Type == "lb21" },
		},
		{
			name: "one that leaves keeps its ports and decides nothing", before: []lb.Member{member("a", hetz("name", "front"), 80), member("b", nil, 81)},
			sharers: []lb.Member{as(member("a", hetz("name", "front"), 80, 90), lb.Closing), member("b", nil, 80, 81)},
			want:    "a: 80 PortConflict(0,ports=80/TCP); b: 81 -80 PortConflict(1,ports=80/TCP)",
			also:    func(s lb.Spec) bool { return strings.HasPrefix(s.Name, "shared-shop.edge-") },
		},
		{
			name: "all leave", before: []lb.Member{member("a", hetz("name", "front", "type", "lb21", "algorithm-type", "least_connections"), 80)},
			sharers: []lb.Member{as(member("a", hetz("name", "front"), 80), lb.Closing)}, want: "a: 80",
			also: func(s lb.Spec) bool {
				return s.Type == "lb21" && s.Algorithm == lb.LeastConnections && s.Network == 7 && s.Public && strings.HasPrefix(s.Name, "shared-")
			},
		},
		{name: "one that is barred opens nothing", sharers: []lb.Member{barred(member("a", nil, 80)), member("b", nil, 81)}, want: "a: -80 Barred(1,=); b: 81"},
		{
			name: "one that is barred keeps what it has", before: []lb.Member{member("a", nil, 80), member("b", nil, 81)},
			sharers: []lb.Member{barred(member("a", nil, 80, 82)), member("b", nil, 81)}, want: "a: 80 -82 Barred(1,=); b: 81",
		},
		{
			name: "nodes that all admit", sharers: []lb.Member{member("a", nil, 80), on(member("b", nil, 81), 2, 3), on(member("c", nil, 82), 1, 2)}, want: "a: 80; b: 81; c: 82",
			also: func(s lb.Spec) bool { return reflect.DeepEqual(s.Nodes, nodesOf([]int64{2})) },
		},
		{
			name:    "one without a port takes no nodes",
			sharers: []lb.Member{on(member("a", nil, 80), 1, 2), on(member("b", nil, 80), 2), on(member("c", nil, 82), 1)},
			want:    "a: 80 PortConflict(0,ports=80/TCP); b: -80 PortConflict(1,ports=80/TCP); c: 82",
			also:    func(s lb.Spec) bool { return reflect.DeepEqual(s.Nodes, nodesOf([]int64{1})) },
		},
		{
			name: "a selector that leaves none", sharers: []lb.Member{on(member("a", nil, 80), 1), on(member("b", hetz("node-selector", "x=y"), 81), 2), member("c", nil, 82)},
			want: "a: 80; b: -81 NoCommonNode(1,node-selector=x=y); c: 82", also: func(s lb.Spec) bool { return reflect.DeepEqual(s.Nodes, nodesOf([]int64{1})) },
		},
		{
			name: "an oldest one without nodes", sharers: []lb.Member{on(member("a", nil, 80)), member("b", nil, 81)}, want: "a: 80; b: 81",
			also: func(s lb.Spec) bool { return len(s.Nodes) == 0 },
		},
		{
			name:    "no public interface, and no way in the network",
			sharers: []lb.Member{member("a", hetz("use-private-ip", "false"), 80), member("b", hetz("use-private-ip", "true", "disable-public-network", "true"), 81)},
			want:    "a: 80; b: 81 FieldWithoutEffect(0,use-private-ip=true) FieldWithoutEffect(0,disable-public-network=true)",
			also:    func(s lb.Spec) bool { return s.Public && !s.UsePrivateIP },
		},
		{
			name: "a range without the address", sharers: []lb.Member{member("a", hetz("private-ipv4", "10.0.0.5"), 80), member("b", hetz("private-subnet-ip-range", "10.9.0.0/24"), 81)},
			want: "a: 80; b: 81 FieldWithoutEffect(0,private-subnet-ip-range=10.9.0.0/24)",
			also: func(s lb.Spec) bool {
				return s.PrivateIP == netip.MustParseAddr("10.0.0.5") && !s.PrivateRange.IsValid()
			},
		},
		{
			name: "reverse DNS", sharers: []lb.Member{member("a", nil, 80), member("b", hetz("ipv4-rdns", "b.example.com"), 81), member("c", hetz("ipv4-rdns", "c.example.com"), 82)},
			want: "a: 80; b: 81; c: 82 FieldWithoutEffect(0,ipv4-rdns=c.example.com)", also: func(s lb.Spec) bool { return s.IPv4Name == "b.example.com" },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			have := lb.State{}
			if c.before != nil {
				var err error
				if have, err = apply(have, merged(have, c.before...).Ops); err != nil {
					t.Fatal(err)
				}
			}
			plan := merged(have, c.sharers...)
			if got := shown(c.sharers, plan.Parts); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if c.also != nil && !c.also(plan.Spec) {
				t.Errorf("%+v", plan.Spec)
			}
		})
	}
}

// Only the group owns its load balancer, and the group owns no other.
func TestOwnersOfShared(t *testing.T) {
	service := lb.Owner{Cluster: "demo", UID: "a"}
	labels := merged(lb.State{}, needsHTTP(t, "a", nil, 80), needsHTTP(t, "b", nil, 81)).Spec.Labels()
	want := map[string]string{
		lb.LabelCluster: "demo", lb.LabelShared: "shop.edge", "underlay.dev/svc-a": "", "underlay.dev/svc-b": "",
		"underlay.dev/port-80": "a", "underlay.dev/port-81": "b",
	}
	if !maps.Equal(labels, want) {
		t.Errorf("labels %v, want %v", labels, want)
	}
	switch {
	case service.Owns(labels), !service.Carries(labels), !group.Owns(labels),
		group.Owns(service.Labels()):
		t.Error("a Service owns what is shared, or the group what is not")
	case lb.GroupOwner("demo", "shop.other").Owns(labels), lb.GroupOwner("other", "shop.edge").Owns(labels):
		t.Error("another group owns it")
	}
	labels[lb.LabelPeer] = "a"
	have := lb.State{ID: 5, Name: "web", Labels: labels}
	single := parse(t, lb.Service{UID: "a", Ports: []lb.Port{{Number: 80, Protocol: "TCP", NodePort: 30080}}}, lb.Defaults{Cluster: "demo", Location: "fsn1"})
	single.Name, single.Takeover.Adopt, single.Takeover.Listed = "web", true, true
	if got, err := lb.Claim(single, []lb.State{have}); err == nil || got.Exists() {
		t.Errorf("a Service takes over a shared load balancer: %v, %v", got, err)
	}
}

// The result depends only on the Services that exist in the end, not on earlier ones or their
// order. While both exist, no port moves from its owner to a younger Service, and no port is ever
// open for a Service that doesn't own it.
func TestShareDoesNotDependOnThePath(t *testing.T) {
	const services = 5
	random := func(r *rand.Rand, i int) lb.Member {
		annotations := map[string]string{}
		for name, values := range map[string][]string{
			"name": {"x", "y"}, "algorithm-type": {"round_robin", "least_connections"}, "type": {"lb21", "lb31"},
			"use-private-ip": {"true", "false"}, "ipv4-rdns": {"a.example.com", "b.example.com"},
		} {
			if r.IntN(3) == 0 {
				annotations[hetzner+name] = values[r.IntN(len(values))]
			}
		}
		ports := slices.Sorted(slices.Values(r.Perm(8)[:1+r.IntN(3)]))
		for i := range ports {
			ports[i] += 80
		}
		s := needsHTTP(t, fmt.Sprint("s", i), annotations, ports...)
		s.Nodes = nodesOf(slices.Sorted(slices.Values([]int64{1, int64(2 + r.IntN(3))})))
		return s
	}
	plan := func(present map[int]lb.Member, have lb.State) lb.Plan {
		var sharers []lb.Member
		for _, i := range slices.Sorted(maps.Keys(present)) {
			sharers = append(sharers, present[i])
		}
		return merged(have, sharers...)
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		have, present := lb.State{}, map[int]lb.Member{0: random(r, 0)}
		for range 20 {
			i := r.IntN(services)
			if _, there := present[i]; there && r.IntN(2) == 0 && len(present) > 1 {
				delete(present, i)
			} else {
				present[i] = random(r, i)
			}
			if len(present) > 0 {
				present[slices.Min(slices.Collect(maps.Keys(present)))] = withType(present, "lb21")
			}
			spec := plan(present, have).Spec
			for port, owner := range spec.PortOwners {
				before, at := have.PortOwner(port), slices.Index(spec.Sharers, owner)
				was := slices.Index(spec.Sharers, before)
				if still := was >= 0 && requestsPort(present, before, port); still && at > was {
					t.Fatalf("seed %d: port %d went from %s to %s, which is younger", seed, port, before, owner)
				}
			}
			var err error
			for range 2 { // a creation doesn't set reverse DNS
				if have, err = apply(have, plan(present, have).Ops); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if again := plan(present, have).Ops; len(again) != 0 {
				t.Fatalf("seed %d: not at rest: %v", seed, again)
			}
		}
		first := plan(present, lb.State{})
		fresh, err := apply(lb.State{}, first.Ops)
		if err == nil {
			fresh, err = apply(fresh, plan(present, fresh).Ops)
		}
		now := plan(present, have)
		if err != nil || fmt.Sprintf("%+v", fresh) != fmt.Sprintf("%+v", have) || !reflect.DeepEqual(first.Parts, now.Parts) {
			t.Errorf("seed %d: %v\n got %+v\nwant %+v", seed, err, have, fresh)
		}
	}
}

// withType returns the oldest Service with a type that has room for all ports: with too small a
// type, the result depends on the ports that were open before.
func withType(present map[int]lb.Member, typ string) lb.Member {
	s := present[slices.Min(slices.Collect(maps.Keys(present)))]
	s.Spec.Type, s.Spec.Takeover.Annotated.Type = typ, true
	return s
}

func requestsPort(present map[int]lb.Member, uid string, port int) bool {
	for _, s := range present {
		if s.Spec.Owner.UID == uid {
			_, ok := lb.ByPort(s.Spec.Listeners)[port]
			return ok
		}
	}
	return false
}
