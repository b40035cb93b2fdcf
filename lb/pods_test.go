package lb_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func pod(n, i int) lb.Target {
	return lb.Target{Server: int64(n), Address: netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::1:%x", n, i))}
}

// atPods returns a Service with pods as targets, which listen on these ports.
func atPods(ports ...int) (lb.Service, lb.Defaults) {
	svc, d := plain()
	svc.Annotations = map[string]string{lb.AnnotationTargets: "pods"}
	svc.PodTargets = true
	for i := range svc.Ports {
		svc.Ports[i].NodePort, svc.Ports[i].TargetPorts = 0, ports
	}
	return svc, d
}

func TestParseWithPodsAsTargets(t *testing.T) {
	svc, d := atPods(8080)
	svc.IPv6Only, svc.Local, d.UsePrivateIP, d.HealthCheck = true, true, true, lb.CheckKubeProxy
	spec, notes, err := lb.Parse(svc, d)
	if err != nil || len(notes) != 0 || len(spec.Hindrances()) != 0 {
		t.Fatalf("notes %v, hindrances %v, error %v", notes, spec.Hindrances(), err)
	}
	l := spec.Listeners[0]
	if !spec.PodTargets || spec.UsePrivateIP || !spec.Public || l.DestinationPort != 8080 || !strings.HasPrefix(l.Check.String(), "tcp :8080 ") {
		t.Errorf("got %+v", spec)
	}
}

func TestPodsAsTargetsByAnnotations(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		change      func(*lb.Service, *lb.Defaults)
		want        string // the check, or a part of an error or a note
	}{
		"check by annotations":      {annotations: map[string]string{hetzner + "health-check-protocol": "http", hetzner + "health-check-http-path": "/up"}, want: "http :8080/up "},
		"another port":              {annotations: map[string]string{hetzner + "health-check-port": "9090"}, want: "tcp :9090 "},
		"private":                   {annotations: map[string]string{hetzner + "use-private-ip": "true"}, want: hetzner + `use-private-ip="true": pods are reached at their public addresses`},
		"not private":               {annotations: map[string]string{hetzner + "use-private-ip": "false"}, want: "tcp :8080 "},
		"no public interface":       {annotations: map[string]string{hetzner + "disable-public-network": "true", hetzner + "use-private-ip": "true"}, want: hetzner + `disable-public-network="true"`},
		"none by configuration":     {change: func(_ *lb.Service, d *lb.Defaults) { d.UsePrivateIP, d.DisablePublicNetwork = true, true }, want: `underlay.dev/targets="pods": pods are reached through`},
		"several numbers of a name": {change: func(s *lb.Service, _ *lb.Defaults) { s.Ports[0].TargetPorts = []int{8080, 8081} }, want: `spec.ports="443/TCP": the target port has the numbers 8080, 8081 `},
		"a name without a number":   {change: func(s *lb.Service, _ *lb.Defaults) { s.Ports[0].TargetPorts = nil }, want: `spec.ports="443/TCP": no pod has a port`},
		"another word":              {annotations: map[string]string{lb.AnnotationTargets: "endpoints"}, want: "set nodes or pods"},
		"affinity":                  {change: func(s *lb.Service, _ *lb.Defaults) { s.ClientIPAffinity = true }, want: "chooses a pod for each connection"},
	} {
		svc, d := atPods(8080)
		for key, value := range c.annotations {
			svc.Annotations[key] = value
		}
		if c.change != nil {
			c.change(&svc, &d)
		}
		spec, notes, err := lb.Parse(svc, d)
		got := fmt.Sprint(notes, err, spec.Hindrances())
		if len(spec.Listeners) > 0 {
			got += spec.Listeners[0].Check.String()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s does not tell %q", name, got, c.want)
		}
		var refused *lb.RefusedError
		if err != nil && !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Pods are targets in these cases:
//
//	load balancer has   every pod can be one   some can   none can   no pod is ready
//	nothing             pods                   pods       nodes      pods
//	nodes               pods                   nodes      nodes      nodes
//	pods                pods                   pods       nodes      pods
func TestChoiceBetweenPodsAndNodes(t *testing.T) {
	every := lb.Pods{Targets: []lb.Target{pod(1, 1)}}
	some := lb.Pods{Targets: []lb.Target{pod(1, 1)}, Others: []string{"fd00::1", "fd00::2"}}
	none := lb.Pods{Others: []string{"fd00::1"}}
	idle := lb.Pods{}
	for _, c := range []struct {
		name                    string
		have                    []lb.Target
		every, some, none, idle bool
	}{
		{"nothing", nil, true, true, false, true},
		{"nodes", []lb.Target{{Server: 1}}, true, false, false, false},
		{"an address", []lb.Target{lb.AddressTarget(netip.MustParseAddr("203.0.113.5"))}, true, false, false, false},
		{"pods", []lb.Target{pod(2, 1)}, true, true, false, true},
		{"both", []lb.Target{{Server: 1}, pod(2, 1)}, true, true, false, true},
	} {
		have := lb.State{ID: 1, Targets: c.have}
		for _, p := range []struct {
			pods lb.Pods
			want bool
		}{{every, c.every}, {some, c.some}, {none, c.none}, {idle, c.idle}} {
			got, notes := p.pods.Choose(have)
			if got != p.want {
				t.Errorf("%s, %+v: pods %t", c.name, p.pods, got)
			}
			if quiet := got && len(p.pods.Others) == 0; quiet != (len(notes) == 0) ||
				!quiet && notes[0].Field != lb.AnnotationTargets {
				t.Errorf("%s, %+v: %v", c.name, p.pods, notes)
			}
		}
		for _, pods := range []lb.Pods{
			{IPv4Only: true, Targets: every.Targets}, {NoPool: true, Targets: every.Targets},
		} {
			if got, notes := pods.Choose(have); got || len(notes) != 1 {
				t.Errorf("%s, %+v: pods %t, notes %v", c.name, pods, got, notes)
			}
		}
	}
}

func TestFitSpreadsPodsOverNodes(t *testing.T) {
	var pods, there []lb.Target
	for n := range 10 {
		for i := range 4 {
			pods = append(pods, pod(n+1, i))
		}
	}
	for i := range 4 { // as many as one node has, and one of another
		there = append(there, pod(10, i))
	}
	there = append(there, pod(9, 3))
	spec := lb.Spec{Type: "lb11", Targeting: lb.Targeting{PodTargets: true}}.WithPods(pods)
	fitted, notes := spec.Fit(lb.State{ID: 1, Targets: there}, nil)
	if len(fitted.Targets) != 25 || len(notes) != 1 || notes[0].Figures != "25 of 40 pods" || !strings.Contains(notes[0].Text, lb.AnnotationTargets) {
		t.Fatalf("%d targets, notes %v", len(fitted.Targets), notes)
	}
	onNode := map[int64]int{}
	for _, target := range fitted.Targets {
		onNode[target.Server]++
	}
	if len(onNode) != 10 || onNode[10] != 4 || !slices.Contains(fitted.Targets, pod(9, 3)) {
		t.Errorf("pods of nodes: %v", onNode)
	}
	again, _ := spec.Fit(lb.State{ID: 1, Targets: fitted.Targets}, nil)
	if !slices.Equal(again.Targets, fitted.Targets) {
		t.Errorf("another choice the next time: %v, then %v", fitted.Targets, again.Targets)
	}
}

// A change between nodes and pods takes its steps from any state. At every step there is a target
// that serves the listener's destination port, and never more targets than the type allows.
func TestChangeBetweenNodesAndPods(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		spec := func(podTargets bool) lb.Spec {
			d := lb.Defaults{Cluster: "demo", Location: "fsn1", OwnPools: true}
			if podTargets {
				svc, _ := atPods(8080)
				var pods []lb.Target
				for range 1 + r.IntN(25) {
					pods = append(pods, pod(1+r.IntN(5), r.IntN(12)))
				}
				return parse(t, svc, d).WithPods(pods)
			}
			svc, _ := plain()
			return parse(t, svc, d).WithTargets(nodesOf(upTo(1 + r.IntN(25))))
		}
		have, err := created(spec(false))
		if err != nil {
			t.Fatal(err)
		}
		for _, podTargets := range []bool{true, true, false, true, false} {
			want := spec(podTargets)
			for turn := 0; ; turn++ {
				now, _ := want.Against(have, nil)
				step, more := now.Step(have)
				ops := lb.Diff(step, have)
				if len(ops) == 0 && !more {
					break
				}
				if turn > 4 {
					t.Fatalf("seed %d: no end: %v", seed, ops)
				}
				for _, op := range ops {
					if have, err = apply(have, []lb.Op{op}); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					serving := slices.ContainsFunc(have.Targets, func(target lb.Target) bool {
						return target.Pod() == (have.Listeners[0].DestinationPort == 8080)
					})
					if !serving || len(have.Targets) > 25 {
						t.Fatalf("seed %d: after %s:\n%+v", seed, op, have)
					}
				}
			}
			if !slices.Equal(have.Targets, want.Targets) {
				t.Fatalf("seed %d: targets are %v, want %v", seed, have.Targets, want.Targets)
			}
		}
	}
}

// If the cloud rejects all new targets, the old ones are kept.
func TestChangeStopsAtTheFirstStep(t *testing.T) {
	svc, d := plain()
	have, err := created(parse(t, svc, d).WithTargets(nodesOf(upTo(2))))
	if err != nil {
		t.Fatal(err)
	}
	svc, d = atPods(8080)
	want := parse(t, svc, d).WithPods([]lb.Target{pod(1, 1), pod(2, 1)})
	want.Network = have.Network
	step, more := want.Step(have)
	if got := fmt.Sprint(lb.Diff(step, have)); !more || got != "[add pod 2001:db8:1::1:1 on server 1 add pod 2001:db8:2::1:1 on server 2]" {
		t.Errorf("more %t: %s", more, got)
	}
	want.Targets = nil // the cloud refused them
	step, more = want.Step(have)
	if got := lb.Diff(step, have); more || len(got) != 0 {
		t.Errorf("more %t: %v", more, got)
	}
}

// A new pod is added before the old one is removed.
func TestPodsComeBeforeOthersGo(t *testing.T) {
	svc, d := atPods(8080)
	spec := parse(t, svc, d).WithPods([]lb.Target{pod(1, 1)})
	have, err := created(spec)
	if err != nil {
		t.Fatal(err)
	}
	have.Targets = []lb.Target{pod(1, 2)}
	if got := fmt.Sprint(lb.Diff(spec, have)); got != "[add pod 2001:db8:1::1:1 on server 1 remove pod 2001:db8:1::1:2 on server 1]" {
		t.Error(got)
	}
	var all []lb.Target
	for i := range 25 {
		all = append(all, pod(2, i))
	}
	have.Targets = all
	if got := lb.Diff(spec, have); len(got) != 26 || fmt.Sprint(got[:2]) != "[remove pod 2001:db8:2::1:0 on server 2 add pod 2001:db8:1::1:1 on server 1]" {
		t.Errorf("without room: %v", got)
	}
}

// If no pod resolves the name of the target port, the listener keeps its destination port.
func TestListenersKeepTheirPortsWithoutPods(t *testing.T) {
	svc, d := atPods(8080)
	have, err := created(parse(t, svc, d))
	if err != nil {
		t.Fatal(err)
	}
	for i := range svc.Ports {
		svc.Ports[i].TargetPorts = nil
	}
	spec, notes := parse(t, svc, d).Against(have, nil)
	if ops := lb.Diff(spec, have); len(ops) != 0 || len(notes) != 0 {
		t.Errorf("to be done: %v, notes %v", ops, notes)
	}
	svc.Ports = append(svc.Ports, lb.Port{Number: 81, Protocol: "TCP"})
	spec, notes = parse(t, svc, d).Against(have, nil)
	if ops := lb.Diff(spec, have); len(ops) != 0 || len(notes) == 0 ||
		notes[0].Reason != lb.ReasonTargetPortUnknown {
		t.Errorf("to be done: %v, notes %v", ops, notes)
	}
}
