package lb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// peer returns a load balancer as the Hetzner controller leaves it.
func peer(id int64, name, uid string) lb.State {
	return lb.State{
		ID: id, Name: name, Type: "lb11", Location: "fsn1", Public: true, Labels: map[string]string{lb.LabelPeer: uid},
		Listeners: []lb.Listener{{Port: 80, DestinationPort: 30080, Protocol: "tcp", Check: lb.HealthCheck{Protocol: "tcp", Port: 30080, Interval: seconds(15), Timeout: seconds(10), Retries: 3}}},
	}
}

// A Service can claim a load balancer only if the peer created it for the same Service, or if it
// has no owner and the project's owner and the user both consent.
func TestClaim(t *testing.T) {
	ours, others := lb.Owner{Cluster: "demo", UID: "u1"}, lb.Owner{Cluster: "demo", UID: "u2"}
	labelled := func(s lb.State, labels map[string]string) lb.State {
		for k, v := range labels {
			s.Labels[k] = v
		}
		return s
	}
	bare := lb.State{ID: 5, Name: "web"}
	given := lb.State{ID: 5, Name: "web", Labels: handed()}
	for _, c := range []struct {
		name  string
		found []lb.State
		adopt bool
		id    int64
		err   error
	}{
		{name: "nothing"},
		{name: "nothing to adopt", adopt: true},
		{name: "the peer's for this Service", found: []lb.State{peer(1, "web", "u1")}, id: 1},
		{name: "the peer's, under another name", found: []lb.State{peer(1, "old", "u1")}, id: 1},
		{name: "the peer's for another Service", found: []lb.State{peer(1, "web", "u2")}, err: lb.ErrNotOwned},
		{name: "the peer's for a Service that is gone, to be adopted", found: []lb.State{peer(1, "web", "gone")}, adopt: true, err: lb.ErrNotOwned},
		{name: "the peer's label copied", found: []lb.State{peer(1, "web", "u1"), peer(2, "copy", "u1")}, err: lb.ErrAmbiguous},
		{name: "the peer's label on another Service's", found: []lb.State{labelled(peer(1, "web", "u1"), others.Labels())}, err: lb.ErrNotOwned},
		{name: "the peer's label on another cluster's", found: []lb.State{labelled(peer(1, "web", "u1"), map[string]string{lb.LabelCluster: "other"})}, err: lb.ErrNotOwned},
		{name: "nobody's", found: []lb.State{bare}, err: lb.ErrNotOwned},
		{name: "nobody's, to be adopted", found: []lb.State{bare}, adopt: true, err: lb.ErrNotOwned},
		{name: "given to the Service", found: []lb.State{given}, err: lb.ErrNotOwned},
		{name: "given to the Service, to be adopted", found: []lb.State{given}, adopt: true, id: 5},
		{name: "another Service's, to be adopted", found: []lb.State{{ID: 6, Name: "web", Labels: others.Labels()}}, adopt: true, err: lb.ErrNotOwned},
		{name: "another cluster's, to be adopted", found: []lb.State{{ID: 7, Name: "web", Labels: map[string]string{lb.LabelCluster: "other"}}}, adopt: true, err: lb.ErrNotOwned},
	} {
		got, err := lb.Claim(lb.Spec{Owner: ours, Subject: lb.Subject{Namespace: "shop", Service: "web"}, Name: "web", Takeover: lb.Takeover{Adopt: c.adopt}}, c.found)
		if got.ID != c.id || !errors.Is(err, c.err) {
			t.Errorf("%s: got load balancer %d and %v, want %d and %v", c.name, got.ID, err, c.id, c.err)
		}
	}
	_, err := lb.Claim(lb.Spec{Owner: ours, Name: "web"}, []lb.State{bare})
	if !strings.Contains(err.Error(), "underlay.dev/adopt") {
		t.Errorf("%v does not name the way to adopt it", err)
	}
}

// plans returns the plan for a Service and an existing load balancer.
func plans(t *testing.T, svc lb.Service, d lb.Defaults, have lb.State) (string, []lb.Note) {
	t.Helper()
	spec, notes := parse(t, svc, d).Against(have, nil)
	return fmt.Sprint(lb.Diff(spec, have)), notes
}

func TestTakeoverKeepsTheChecksUntilOptedIn(t *testing.T) {
	svc, d := plain()
	d.Network = 0
	svc.Ports = svc.Ports[1:]
	have := peer(1, "a0a1b2c3d00004000800000000000000", svc.UID)
	have.Algorithm = lb.RoundRobin

	plan, notes := plans(t, svc, d, have)
	if plan != `[set 4 labels]` || len(notes) != 1 || notes[0].Reason != lb.ReasonCheckKept {
		t.Errorf("takeover: %s, notes %v, want labels alone and a note", plan, notes)
	}
	have.Labels[lb.LabelCheck] = "kept"
	for k, v := range (lb.Owner{Cluster: d.Cluster, UID: svc.UID}).Labels() {
		have.Labels[k] = v
	}
	if plan, _ := plans(t, svc, d, have); plan != "[]" {
		t.Errorf("after the takeover: %s, want nothing", plan)
	}

	moved := svc
	moved.Ports = []lb.Port{{Number: 80, Protocol: "TCP", NodePort: 30099}}
	if plan, _ := plans(t, moved, d, have); plan != "[update listener 80 → 30099, tcp :30099 every 15s, timeout 10s, 3 tries]" {
		t.Errorf("another node port: %s, want the check to follow it", plan)
	}
	svc.Annotations = map[string]string{hetzner + "health-check-retries": "5"}
	if plan, _ := plans(t, svc, d, have); plan != "[update listener 80 → 30080, tcp :30080 every 15s, timeout 10s, 5 tries]" {
		t.Errorf("a figure by annotation: %s", plan)
	}
	svc.Annotations = map[string]string{"underlay.dev/health-check": "kube-proxy"}
	if plan, notes := plans(t, svc, d, have); len(notes) != 0 ||
		plan != `[set 3 labels update listener 80 → 30080, http :10256/healthz every 10s, timeout 15s, 3 tries]` {
		t.Errorf("opted in: %s, notes %v", plan, notes)
	}
}

// The check options of one port change no other port's check.
func TestTakeoverKeepsTheChecksUntilEveryPortOptedIn(t *testing.T) {
	svc, d := plain()
	d.Network = 0
	have := peer(1, "a0a1b2c3d00004000800000000000000", svc.UID)
	have.Algorithm = lb.RoundRobin
	https := have.Listeners[0]
	https.Port, https.DestinationPort, https.Check.Port = 443, 30443, 30443
	have.Listeners = append(have.Listeners, https)
	for options, want := range map[string]string{
		`{"443":{"healthCheck":{"port":8080}}}`:                     `[set 4 labels]`,
		`{"443":{"healthCheck":{"port":8080,"mode":"kube-proxy"}}}`: `[set 4 labels]`,
		`{"443":{"healthCheck":{"port":8080}},"80":{"healthCheck":{"mode":"node-port"}}}`: `[set 3 labels ` +
			`update listener 80 → 30080, tcp :30080 every 10s, timeout 15s, 3 tries update listener 443 → 30443, tcp :8080 every 10s, timeout 15s, 3 tries]`,
	} {
		svc.Annotations = map[string]string{lb.AnnotationPorts: options}
		plan, notes := plans(t, svc, d, have)
		if kept := slices.ContainsFunc(notes, func(n lb.Note) bool { return n.Reason == lb.ReasonCheckKept }); plan != want || kept == strings.Contains(want, "update") {
			t.Errorf("%s: %s, notes %v, want %s", options, plan, notes, want)
		}
	}
}

// The status of an IPv4-only Service has no IPv6 address, unless an annotation requests it or
// clients already use it.
func TestIPv6AddressOfIPv4Services(t *testing.T) {
	for _, c := range []struct {
		name       string
		annotation string
		takenOver  bool
		want       bool
	}{
		{name: "by its families"},
		{name: "by annotation", annotation: "false", want: true},
		{name: "taken over", takenOver: true, want: true},
		{name: "taken over, but unwanted", annotation: "true", takenOver: true},
	} {
		svc, d := plain()
		svc.IPv4Only = true
		svc.Annotations = map[string]string{hetzner + "ipv6-disabled": c.annotation}
		have := lb.State{ID: 1, Public: true}
		if c.takenOver {
			have = peer(1, "web", svc.UID)
		}
		have.IPv4, have.IPv6 = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")
		points := lb.Ingress(parse(t, svc, d), have)
		if shown := len(points) > 1; shown != c.want {
			t.Errorf("%s: shown %v, want IPv6 among it: %t", c.name, points, c.want)
		}
	}
}

func TestAddressInTheNetwork(t *testing.T) {
	svc, d := plain()
	svc.Annotations = map[string]string{hetzner + "private-ipv4": "10.0.0.9", hetzner + "use-private-ip": "true", hetzner + "disable-public-network": "true"}
	want := parse(t, svc, d).WithTargets(nodesOf([]int64{1, 2}))
	create := lb.Diff(want, lb.State{})[0].(lb.Create).Spec
	if create.Network != 0 || !create.Public || len(create.Targets)+len(create.Listeners) != 0 {
		t.Errorf("a creation cannot choose an address, and opens no port before it is private: %+v", create)
	}
	have, err := apply(lb.State{}, lb.Diff(want, lb.State{}))
	if err != nil {
		t.Fatal(err)
	}
	ops := lb.Diff(want, have)
	if got := fmt.Sprint(ops); got != "[attach to network 7 as 10.0.0.9 set public interface false]" {
		t.Errorf("after the creation: %s", got)
	}
	if have, err = settle(have, want); err != nil || have.Public || len(have.Listeners) != 2 ||
		len(have.Targets) != 2 {
		t.Fatalf("%+v, %v", have, err)
	}

	svc.Annotations[hetzner+"private-ipv4"] = ""
	if ops := lb.Diff(parse(t, svc, d).WithTargets(nodesOf([]int64{1, 2})), have); len(ops) != 0 {
		t.Errorf("no address is wanted any more: %v, want it left alone", ops)
	}
	svc.Annotations[hetzner+"private-subnet-ip-range"] = "10.0.8.0/24"
	want = parse(t, svc, d).WithTargets(nodesOf([]int64{1, 2}))
	if got := fmt.Sprint(lb.Diff(want, have)); got != "[move from network 7: attach to network 7 in 10.0.8.0/24 add server 1 (private) add server 2 (private)]" {
		t.Errorf("another subnet: %s", got)
	}
	// Leaving the network would permanently drop targets of others.
	have.OtherTargets = 1
	kept, notes := want.Against(have, nil)
	if ops := lb.Diff(kept, have); len(ops) != 0 || len(notes) != 1 ||
		notes[0].Reason != lb.ReasonImmutable {
		t.Errorf("with targets of others: %v, notes %v", ops, notes)
	}
	want.Network = 8
	kept, notes = want.Against(have, nil)
	if ops := lb.Diff(kept, have); len(ops) != 0 || len(notes) != 1 ||
		notes[0].Reason != lb.ReasonImmutable {
		t.Errorf("another network, with targets of others: %v, notes %v", ops, notes)
	}
}

// Reverse DNS that was set by hand is not reset.
func TestReverseDNS(t *testing.T) {
	svc, d := plain()
	want := parse(t, svc, d)
	have, err := apply(lb.State{}, lb.Diff(want, lb.State{}))
	if err != nil {
		t.Fatal(err)
	}
	have.IPv4Name = "by-hand.example.com"
	if ops := lb.Diff(want, have); len(ops) != 0 {
		t.Errorf("set by hand: %v", ops)
	}
	svc.Annotations = map[string]string{hetzner + "ipv4-rdns": "web.example.com"}
	named := parse(t, svc, d)
	ops := lb.Diff(named, have)
	if got := fmt.Sprint(ops); got != fmt.Sprintf("[set 3 labels set reverse DNS of %s to web.example.com]", have.IPv4) {
		t.Errorf("annotated: %s", got)
	}
	if have, err = apply(have, ops); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(lb.Diff(want, have)); got != fmt.Sprintf("[reset reverse DNS of %s set 2 labels]", have.IPv4) {
		t.Errorf("annotation removed: %s", got)
	}
	// If a process dies between the two ops, the rest follows later.
	if have, err = apply(have, lb.Diff(want, have)[:1]); err != nil {
		t.Fatal(err)
	}
	if have, err = apply(have, lb.Diff(want, have)); err != nil || len(lb.Diff(want, have)) != 0 {
		t.Errorf("left: %v, %v", lb.Diff(want, have), err)
	}
}
