package controller

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// remembering carries a Service out with the memory of the time before, and returns the outcome.
func (l *lab) remembering(svc *corev1.Service, m memory, nodes ...*corev1.Node) outcome {
	p := l.plan(svc, nodes...)
	p.memory = m
	return l.converge(quiet(l.t.Context()), p, hooks{})
}

// Servers outside of the network cannot be reached there: they stay targets at their public
// addresses.
func TestServersOutsideTheNetworkStayTargets(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		delete(svc.Annotations, hetznerPrefix+"use-private-ip")
		var outside []*corev1.Node
		for i := range 3 {
			server, err := l.sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprint("outside-", i)})
			l.must(err)
			n := l.nodes[0].DeepCopy()
			n.Name, n.Spec.ProviderID = server.Name, fmt.Sprint("hcloud://", server.ID)
			outside = append(outside, n)
		}
		before := l.converged(svc, outside...)
		svc.Annotations[hetznerPrefix+"use-private-ip"] = "true"
		svc.Spec.Ports[0].NodePort = 30099
		o := l.remembering(svc, memory{}, outside...)
		for range outside[1:] { // each is tried once
			o = l.remembering(svc, o.memory, outside...)
		}
		after, _ := l.sim.LoadBalancer(before.ID)
		if len(after.Targets) != 3 || after.Targets[0].UsePrivateIP || after.Services[0].DestinationPort != 30099 {
			t.Errorf("%s\n%s", l.shape(after), l.log())
		}
		if o.Transient != nil || len(o.Notes) != 3 || o.Notes[0].Reason != reasonRejected {
			t.Errorf("%v, notes %v", o.Transient, o.Notes)
		}
		l.requests()
		l.remembering(svc, o.memory, outside...)
		if _, writes, _ := l.requests(); writes != 0 {
			t.Errorf("%d writes at once after that", writes)
		}
	})
}

// An address in the network that somebody has is not had at the price of the one that is there.
func TestRefusedAddressInTheNetwork(t *testing.T) {
	for name, harm := range map[string]func(l *lab, id int64){
		"refused": func(*lab, int64) {},
		"killed before it was attached again": func(l *lab, id int64) {
			l.post(fmt.Sprintf("/load_balancers/%d/actions/detach_from_network", id), fmt.Sprintf(`{"network":%d}`, l.Network))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				svc := l.service("000000000001")
				before := l.converged(svc, l.nodes...)
				server, _ := l.sim.Server(serverOf(t, l.nodes[0]))
				svc.Annotations[hetznerPrefix+"private-ipv4"] = server.PrivateNet[0].IP
				svc.Spec.Ports[0].NodePort = 30099
				harm(l, before.ID)
				o := l.remembering(svc, memory{}, l.nodes[1:]...)
				after, _ := l.sim.LoadBalancer(before.ID)
				if len(after.PrivateNet) != 1 || len(after.Targets) != 4 || after.Services[0].DestinationPort != 30099 {
					t.Fatalf("%s\n%s", l.shape(after), l.log())
				}
				if name == "refused" && after.PrivateNet[0].IP != before.PrivateNet[0].IP {
					t.Errorf("address %s, was %s", after.PrivateNet[0].IP, before.PrivateNet[0].IP)
				}
				if o.Transient != nil || len(o.Notes) != 1 || !strings.Contains(o.Notes[0].Text, server.PrivateNet[0].IP) {
					t.Errorf("%v, notes %v", o.Transient, o.Notes)
				}
				l.requests()
				again := l.remembering(svc, o.memory, l.nodes[1:]...)
				if _, writes, _ := l.requests(); writes != 0 || len(again.Notes) != 1 {
					t.Errorf("%d writes at once after that, notes %v", writes, again.Notes)
				}
				time.Sleep(2 * time.Hour)
				svc.Annotations[hetznerPrefix+"private-ipv4"] = "10.0.0.88"
				l.remembering(svc, again.memory, l.nodes[1:]...)
				if after, _ := l.sim.LoadBalancer(before.ID); after.PrivateNet[0].IP != "10.0.0.88" || len(after.Targets) != 4 {
					t.Errorf("%s\n%s", l.shape(after), l.log())
				}
			})
		})
	}
}

// An attachment that the cloud takes on and then fails is not tried again at once: each attempt
// drops every private target for a moment.
func TestFailedMoveIsNotRepeatedAtOnce(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		before := l.converged(svc, l.nodes...)
		svc.Annotations[hetznerPrefix+"private-ipv4"] = "10.0.0.88"
		if err := l.sim.Inject(hcloudsim.Fault{Match: "POST /load_balancers/{id}/actions/attach_to_network", FailAction: "action_failed"}); err != nil {
			t.Fatal(err)
		}
		o := l.remembering(svc, memory{}, l.nodes...)
		after, _ := l.sim.LoadBalancer(before.ID)
		if after.PrivateNet[0].IP != before.PrivateNet[0].IP || len(after.Targets) != len(l.nodes) || len(o.Notes) != 1 {
			t.Fatalf("%s\nnotes %v\n%s", l.shape(after), o.Notes, l.log())
		}
		l.requests()
		again := l.remembering(svc, o.memory, l.nodes...)
		if _, writes, _ := l.requests(); writes != 0 {
			t.Errorf("%d writes at once after that", writes)
		}
		time.Sleep(2 * time.Hour)
		l.remembering(svc, again.memory, l.nodes...)
		if after, _ := l.sim.LoadBalancer(before.ID); after.PrivateNet[0].IP != "10.0.0.88" || len(after.Targets) != len(l.nodes) {
			t.Errorf("later: %s\n%s", l.shape(after), l.log())
		}
	})
}

// A process that is told to stop, at whatever moment, puts something in the place of what it took
// away: also where its context never ends and its gate closes, which then takes as long as that.
func TestASwapOutlivesItsProcess(t *testing.T) {
	for _, annotation := range []struct{ name, value string }{
		{"private-ipv4", "10.0.0.88"}, {"use-private-ip", "false"},
	} {
		for _, gated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, gate %t", annotation.name, gated), func(t *testing.T) {
				stops := 0
				for more := true; more; { // as many requests as it takes
					t.Run(fmt.Sprint("request ", stops+1), func(t *testing.T) {
						inLab(t, func(l *lab) { more = l.stopAt(stops+1, gated, annotation.name, annotation.value) })
					})
					if more {
						stops++
					}
				}
				if stops < 5 {
					t.Errorf("stopped at %d requests only", stops)
				}
			})
		}
	}
}

// stopAt does a swap that is told to stop, and reports whether it takes that many requests.
func (l *lab) stopAt(request int, gated bool, annotation, value string) bool {
	svc := l.service("000000000001")
	before := l.converged(svc, l.nodes...)
	ctx, cancel := context.WithCancel(quiet(l.t.Context()))
	defer cancel()
	closed, done := make(chan error, 1), make(chan struct{})
	stop := func() { cancel(); closed <- nil }
	if gated {
		stop = func() {
			go func() {
				within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				closed <- l.gate.Close(within, 30*time.Second)
			}()
			synctest.Wait()
		}
	}
	l.wire.spoil(request, harm{after: stop})
	svc.Annotations[hetznerPrefix+annotation] = value
	go func() {
		defer close(done)
		l.converge(ctx, l.plan(svc, l.nodes...), hooks{})
	}()
	if gated {
		select {
		case err := <-closed: // while a swap goes on that nobody waits for
			closed <- err
		case <-done:
		}
	} else {
		<-done
	}
	if l.wire.sent() < request {
		return false
	}
	if err := <-closed; err != nil {
		l.t.Errorf("closing: %v", err)
	}
	time.Sleep(time.Second) // what the cloud has accepted goes on there
	after, _ := l.sim.LoadBalancer(before.ID)
	if len(after.PrivateNet) != 1 || len(after.Targets) != len(l.nodes) {
		l.t.Errorf("%d networks and %d targets\n%s", len(after.PrivateNet), len(after.Targets), l.log())
	}
	<-done
	return true
}

func serverOf(t *testing.T, node *corev1.Node) (id int64) {
	t.Helper()
	if _, err := fmt.Sscanf(node.Spec.ProviderID, "hcloud://%d", &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// The subnet by default is for load balancers that are attached from now on.
func TestTheSubnetByDefaultMovesNobody(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		before := l.converged(svc, l.nodes...)
		l.PrivateSubnet = netip.MustParsePrefix("10.9.0.0/16")
		l.post(fmt.Sprintf("/networks/%d/actions/add_subnet", l.Network), `{"type":"cloud","network_zone":"eu-central","ip_range":"10.9.0.0/16"}`)
		l.requests()
		l.converged(svc, l.nodes...)
		if _, writes, _ := l.requests(); writes != 0 {
			t.Errorf("%d writes for a load balancer that is attached at %s\n%s", writes, before.PrivateNet[0].IP, l.log())
		}
		fresh := l.service("000000000002")
		fresh.Annotations[lb.AnnotationName] = "fresh"
		b := l.converged(fresh, l.nodes...)
		if !l.PrivateSubnet.Contains(netip.MustParseAddr(b.PrivateNet[0].IP)) || len(b.Targets) != 5 {
			t.Errorf("a new one is attached at %s with %d targets", b.PrivateNet[0].IP, len(b.Targets))
		}
		// An address by annotation does not have to lie in it.
		fresh.Annotations[hetznerPrefix+"private-ipv4"] = "10.0.0.77"
		if b := l.converged(fresh, l.nodes...); b.PrivateNet[0].IP != "10.0.0.77" {
			t.Errorf("attached at %s", b.PrivateNet[0].IP)
		}
	})
}
