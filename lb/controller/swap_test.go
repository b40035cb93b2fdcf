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
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

// idle reconciles the Service once more, which must not write anything to the cloud, and returns
// the notes.
func (l *lab) idle(svc *corev1.Service, nodes ...*corev1.Node) []lb.Note {
	l.t.Helper()
	l.requests()
	notes, err := l.once(svc, nodes...)
	log := l.log()
	if _, writes := l.requests(); writes != 0 {
		l.t.Errorf("%d writes, notes %v, %v\n%s", writes, notes, err, log)
	}
	return notes
}

// Servers outside of the network cannot be reached there: they stay targets at their public
// addresses.
func TestServersOutsideTheNetworkStayTargets(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001", "use-private-ip", "false")
		var outside []*corev1.Node
		for i := range 3 {
			outside = append(outside, l.server(hcloudsim.ServerSeed{Name: fmt.Sprint("outside-", i)}))
		}
		l.converged(svc, outside...)
		svc = l.service("000000000001")
		svc.Spec.Ports[0].NodePort = 30099
		var notes []lb.Note
		for range outside { // each is tried once
			var err error
			notes, err = l.once(svc, outside...)
			l.must(err)
			time.Sleep(recheckAfter)
		}
		after := l.balancer(svc)
		if len(after.Targets) != 3 || len(public(after)) != 3 ||
			after.Services[0].DestinationPort != 30099 {
			t.Errorf("%s\n%s", l.shape(after), l.log())
		}
		if len(notes) != 3 || notes[0].Reason != reasonRejected {
			t.Errorf("notes %v", notes)
		}
		l.idle(svc, outside...)
	})
}

// The request of an address that is taken must not lose the current one.
func TestRefusedAddressInTheNetwork(t *testing.T) {
	for name, harm := range map[string]func(l *lab, id int64){
		"refused": func(*lab, int64) {},
		"killed before it was attached again": func(l *lab, id int64) {
			l.post(fmt.Sprintf("/load_balancers/%d/actions/detach_from_network", id), fmt.Sprintf(`{"network":%d}`, l.Network))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				t, svc := l.t, l.service("000000000001")
				before := l.converged(svc, l.nodes...)
				id, err := kube.ParseProviderID(l.nodes[0].Spec.ProviderID)
				l.must(err)
				server, _ := l.sim.Server(id)
				address := server.PrivateNet[0].IP
				svc.Annotations[hetznerPrefix+"private-ipv4"] = address
				svc.Spec.Ports[0].NodePort = 30099
				harm(l, before.ID)
				notes, err := l.once(svc, l.nodes[1:]...)
				after := l.balancer(svc)
				if len(after.PrivateNet) != 1 || len(after.Targets) != 4 ||
					after.Services[0].DestinationPort != 30099 {
					t.Fatalf("%s\n%s", l.shape(after), l.log())
				}
				if name == "refused" && after.PrivateNet[0].IP != before.PrivateNet[0].IP {
					t.Errorf("address %s, was %s", after.PrivateNet[0].IP, before.PrivateNet[0].IP)
				}
				if err != nil || len(notes) != 1 || !strings.Contains(notes[0].Text, address) {
					t.Errorf("%v, notes %v", err, notes)
				}
				if notes := l.idle(svc, l.nodes[1:]...); len(notes) != 1 {
					t.Errorf("notes %v", notes)
				}
				// Another address is requested at once.
				svc.Annotations[hetznerPrefix+"private-ipv4"] = "10.0.0.88"
				if after := l.converged(svc, l.nodes[1:]...); after.PrivateNet[0].IP != "10.0.0.88" || len(after.Targets) != 4 {
					t.Errorf("%s\n%s", l.shape(after), l.log())
				}
			})
		})
	}
}

// An attachment that the cloud accepts and then fails is not retried at once: each attempt drops
// every private target for a moment.
func TestFailedMoveIsNotRepeatedAtOnce(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		before := l.converged(svc, l.nodes...)
		svc.Annotations[hetznerPrefix+"private-ipv4"] = "10.0.0.88"
		l.must(l.sim.Inject(hcloudsim.Fault{Match: "POST /load_balancers/{id}/actions/attach_to_network", FailAction: "action_failed"}))
		notes, err := l.once(svc, l.nodes...)
		after := l.balancer(svc)
		if after.PrivateNet[0].IP != before.PrivateNet[0].IP || len(after.Targets) != len(l.nodes) ||
			len(notes) != 1 || notes[0].Reason != reasonRejected || err != nil {
			t.Fatalf("%s\n%v, notes %v\n%s", l.shape(after), err, notes, l.log())
		}
		for range 10 {
			l.idle(svc, l.nodes...)
			time.Sleep(maxRetryDelay)
		}
		time.Sleep(longestRetry)
		if after := l.converged(svc, l.nodes...); after.PrivateNet[0].IP != "10.0.0.88" || len(after.Targets) != len(l.nodes) {
			t.Errorf("later: %s\n%s", l.shape(after), l.log())
		}
	})
}

// A process that is stopped at any request still adds the replacement of a target or network that
// it removed. It also does so if its context never ends and its gate closes, which then takes that
// long.
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

// stopAt stops the process at a request of a swap, and reports whether there were that many
// requests.
func (l *lab) stopAt(request int, gated bool, annotation, value string) bool {
	l.converged(l.service("000000000001"), l.nodes...)
	ctx, cancel := context.WithCancel(l.t.Context())
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
	svc := l.service("000000000001", annotation, value)
	l.put(svc, l.nodes...)
	l.wire.spoil(request, harm{after: stop})
	go func() {
		defer close(done)
		_, _ = l.again(ctx, l.owner(svc))
	}()
	if gated {
		select {
		case err := <-closed: // while a swap is running
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
	time.Sleep(time.Second) // accepted actions continue in the cloud
	after := l.sim.LoadBalancers()[0]
	if len(after.PrivateNet) != 1 || len(after.Targets) != len(l.nodes) {
		l.t.Errorf("%d networks and %d targets\n%s", len(after.PrivateNet), len(after.Targets), l.log())
	}
	<-done
	return true
}

// The default subnet is for load balancers that are attached later.
func TestTheDefaultSubnetMovesNoLoadBalancer(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		l.converged(svc, l.nodes...)
		subnet := netip.MustParsePrefix("10.9.0.0/16")
		l.PrivateSubnet = subnet
		l.restart()
		l.post(fmt.Sprintf("/networks/%d/actions/add_subnet", l.Network), `{"type":"cloud","network_zone":"eu-central","ip_range":"10.9.0.0/16"}`)
		l.settled(svc, l.nodes...)
		fresh := l.service("000000000002", "name", "fresh")
		b := l.converged(fresh, l.nodes...)
		if !subnet.Contains(netip.MustParseAddr(b.PrivateNet[0].IP)) || len(b.Targets) != 5 {
			t.Errorf("a new one is attached at %s with %d targets", b.PrivateNet[0].IP, len(b.Targets))
		}
		// An annotated address may be outside of it.
		fresh.Annotations[hetznerPrefix+"private-ipv4"] = "10.0.0.77"
		if b := l.converged(fresh, l.nodes...); b.PrivateNet[0].IP != "10.0.0.77" {
			t.Errorf("attached at %s", b.PrivateNet[0].IP)
		}
	})
}
