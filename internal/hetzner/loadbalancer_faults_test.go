package hetzner_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/lb"
)

// A load balancer is found again after a lost reply to its creation, or a crash: no second one is
// created.
func TestLoadBalancerCreationIsFoundAgain(t *testing.T) {
	for name, fault := range map[string]hcloudsim.Fault{
		"reply lost":   {Match: "POST /load_balancers", DropAfterApply: true},
		"request lost": {Match: "POST /load_balancers", DropBeforeApply: true},
		"server error": {Match: "POST /load_balancers", Code: "server_error"},
		"locked":       {Match: "POST /load_balancers", Code: "locked", Times: 2},
		"poll lost":    {Match: "GET /actions/{id}", DropAfterApply: true, Times: 2},
		"list lost":    {Match: "GET /load_balancers", DropAfterApply: true},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, lab *balancerLab) {
				spec := lab.spec(t, nil)
				if err := lab.sim.Inject(fault); err != nil {
					t.Fatal(err)
				}
				for attempt := range 3 {
					if err := lab.reconcile(t.Context(), spec); err == nil {
						break
					} else if attempt == 2 {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Second) // as the controller's queue would
				}
				lab.as(t, spec)
			})
		})
	}
}

// Two processes that both found none: the second creation finds the first.
func TestLoadBalancerCreatedTwice(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		spec := lab.spec(t, nil)
		for range 2 {
			if err := lab.Apply(t.Context(), lb.State{}, lb.Create{Spec: spec}); err != nil {
				t.Fatal(err)
			}
		}
		lab.as(t, spec)
	})
}

func TestLoadBalancersOfOthers(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		foreign := lab.spec(t, nil)
		foreign.Owner.UID, foreign.Name = "another", "web"
		if err := lab.reconcile(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		before := lab.sim.LoadBalancers()

		ours := lab.spec(t, nil)
		ours.Name = "web"
		if err := lab.reconcile(t.Context(), ours); !errors.Is(err, lb.ErrNotOwned) || !strings.Contains(err.Error(), `"web"`) {
			t.Errorf("a name that is taken: %v, want ErrNotOwned and the name", err)
		}
		if changed := cmp.Diff(before, lab.sim.LoadBalancers()); changed != "" {
			t.Errorf("the other one changed:\n%s", changed)
		}

		ours.Name = "ours"
		if err := lab.reconcile(t.Context(), ours); err != nil {
			t.Fatal(err)
		}
		ours.Name = "web"
		if err := lab.reconcile(t.Context(), ours); !errors.Is(err, lb.ErrNotOwned) {
			t.Errorf("renamed to a name that is taken: %v, want ErrNotOwned", err)
		}
	})
}

func TestCopiedLabelsAreAmbiguous(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		spec, copied := lab.spec(t, nil), lab.spec(t, nil)
		copied.Owner.UID, copied.Name = "copy", "copy"
		for _, s := range []lb.Spec{spec, copied} {
			if err := lab.reconcile(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		have, err := lab.Observe(t.Context(), copied.Owner)
		if err != nil {
			t.Fatal(err)
		}
		if err := lab.Apply(t.Context(), have, lb.SetLabels{Labels: spec.Owner.Labels()}); err != nil {
			t.Fatal(err)
		}
		_, first := lab.Observe(t.Context(), spec.Owner)
		_, second := lab.Observe(t.Context(), spec.Owner)
		if !errors.Is(first, lb.ErrAmbiguous) || first.Error() != second.Error() {
			t.Errorf("%v, then %v, want ErrAmbiguous with one text", first, second)
		}
	})
}

func TestRefusalsOfTheCloud(t *testing.T) {
	for name, c := range map[string]struct {
		fault  hcloudsim.Fault
		change func(*balancerLab, *lb.Spec)
		want   func(error) bool
	}{
		"protected": {
			fault: hcloudsim.Fault{Match: "DELETE /load_balancers/{id}", Code: "protected"},
			want:  func(err error) bool { return errors.Is(err, lb.ErrProtected) },
		},
		"no such location": {
			change: func(_ *balancerLab, s *lb.Spec) { s.Location = "moon" },
			want:   rejected(false, "location"),
		},
		"quota": {
			fault: hcloudsim.Fault{Match: "POST /load_balancers", Code: "resource_limit_exceeded"},
			want:  rejected(false, "resource_limit_exceeded"),
		},
		"a server outside the network": {
			change: func(lab *balancerLab, s *lb.Spec) { *s = s.WithTargets(nodesOf([]int64{lab.outside})) },
			want:   rejected(true, ""),
		},
		"no such server": {
			change: func(_ *balancerLab, s *lb.Spec) { *s = s.WithTargets(nodesOf([]int64{999999})) },
			want:   rejected(true, ""),
		},
		"an address of somebody else": {
			change: func(_ *balancerLab, s *lb.Spec) {
				s.UsePrivateIP = false
				*s = s.WithTargets([]lb.Node{{Public: netip.MustParseAddr("192.0.2.1")}})
			},
			want: rejected(true, "ip_not_owned): only addresses of dedicated servers"),
		},
		"an address outside the vSwitch subnet": {
			change: func(_ *balancerLab, s *lb.Spec) {
				*s = s.WithTargets([]lb.Node{{Private: netip.MustParseAddr("10.0.0.99")}})
			},
			want: rejected(true, "--node-ip"),
		},
		"a bad token is nobody's Service": {
			fault: hcloudsim.Fault{Match: "POST /load_balancers", Code: "unauthorized"},
			want:  func(err error) bool { return err != nil && !rejected(false, "")(err) && hetzner.Unauthorized(err) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, lab *balancerLab) {
				spec := lab.spec(t, nil)
				if c.change != nil {
					c.change(lab, &spec)
				}
				if c.fault.Match != "" {
					if err := lab.sim.Inject(c.fault); err != nil {
						t.Fatal(err)
					}
				}
				err := lab.reconcile(t.Context(), spec)
				if err == nil {
					err = lab.Apply(t.Context(), lab.as(t, spec), lb.Delete{})
				}
				if !c.want(err) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// An object that was read and is deleted by now leads to another read, not to a message for the
// user.
func TestVanishedLoadBalancerIsNoRefusal(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		spec := lab.spec(t, nil)
		if err := lab.reconcile(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		have := lab.as(t, spec)
		if err := lab.Apply(t.Context(), have, lb.Delete{}); err != nil {
			t.Fatal(err)
		}
		for _, op := range []lb.Op{
			lb.ChangeType{Type: "lb21"},
			lb.SetLabels{Labels: spec.Owner.Labels()},
			lb.Rename{Name: "other"},
			lb.ChangeAlgorithm{Algorithm: lb.LeastConnections},
			lb.UpdateListener{Listener: have.Listeners[0]},
			lb.AddListener{Listener: have.Listeners[0]},
			lb.SetPublicInterface{},
		} {
			if err := lab.Apply(t.Context(), have, op); err == nil || rejected(false, "")(err) {
				t.Errorf("%s: got %v, want an error that passes", op, err)
			}
		}
	})
}

func rejected(target bool, text string) func(error) bool {
	return func(err error) bool {
		var r *lb.RejectedError
		return errors.As(err, &r) && r.Target == target && strings.Contains(r.Error(), text)
	}
}

// The creation of an attached load balancer changes the network, so it is serialized with the
// network's changes.
func TestAttachmentGoesThroughTheNetworksWriter(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		busy, done := make(chan struct{}), make(chan error)
		go func() {
			done <- lab.network.Exclusive(t.Context(), func(context.Context) error { <-busy; return nil })
		}()
		synctest.Wait()
		created := make(chan error, 1)
		go func() { created <- lab.Apply(t.Context(), lb.State{}, lb.Create{Spec: lab.spec(t, nil)}) }()
		time.Sleep(time.Minute)
		if _, writes, _ := lab.counted(); writes != 0 {
			t.Errorf("%d writes while another change of the network runs", writes)
		}
		close(busy)
		if err := errors.Join(<-done, <-created); err != nil {
			t.Fatal(err)
		}
		lab.as(t, lab.spec(t, nil))
	})
}

// byHand changes our load balancer in a way that the controller would not.
func (lab *balancerLab) byHand(t *testing.T, action, body string) {
	t.Helper()
	lab.post(t, fmt.Sprintf("load_balancers/%d/actions/%s", lab.sim.LoadBalancers()[0].ID, action), body)
}

// onNetwork changes the network likewise.
func (lab *balancerLab) onNetwork(t *testing.T, action, body string) {
	t.Helper()
	lab.post(t, fmt.Sprintf("networks/%d/actions/%s", lab.network.Last().ID, action), body)
}

func (lab *balancerLab) post(t *testing.T, path, body string) {
	t.Helper()
	url := "http://cloud.invalid/v1/" + path
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer lab")
	response, err := lab.sim.Transport().RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%v %v", response, err)
	}
	time.Sleep(time.Second) // until the action has ended
}

// Foreign targets of our load balancer are kept.
func TestTargetsOfOthersAreKept(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		spec := lab.spec(t, nil)
		if err := lab.reconcile(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		lab.byHand(t, "add_target", `{"type":"label_selector","label_selector":{"selector":"role=edge"}}`)
		if have := lab.as(t, spec); have.OtherTargets != 1 {
			t.Errorf("%d targets of others, want 1", have.OtherTargets)
		}
	})
}

// A manually changed check is reset, also if no Spec defines it.
func TestEditedCheckIsSetBack(t *testing.T) {
	inLab(t, func(t *testing.T, lab *balancerLab) {
		spec := lab.spec(t, nil)
		if err := lab.reconcile(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		for _, edit := range []string{
			`"domain":"example.com","path":"/healthz"`, `"response":"ok","path":"/healthz"`, `"tls":true,"path":"/healthz"`,
			`"status_codes":["204"],"path":"/healthz"`, `"path":"/"`,
		} {
			lab.byHand(t, "update_service", fmt.Sprintf(`{"listen_port":80,"health_check":{"protocol":"http","port":10256,"interval":10,"timeout":15,"retries":3,"http":{%s}}}`, edit))
			lab.counted()
			if err := lab.reconcile(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			if _, writes, _ := lab.counted(); writes != 1 {
				t.Errorf("%s: %d writes, want 1", edit, writes)
			}
			lab.as(t, spec)
		}
	})
}
