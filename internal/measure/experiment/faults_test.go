package experiment

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// TestCreationsThatFindTheCloudBusy are made in the end.
func TestCreationsThatFindTheCloudBusy(t *testing.T) {
	for _, request := range []string{
		"POST /networks", "POST /servers", "POST /load_balancers", "POST /ssh_keys", "POST /floating_ips", "POST /primary_ips",
	} {
		for name, fault := range map[string]hcloudsim.Fault{
			"locked": {Code: "locked", Times: 3},
			"busy":   {Code: "conflict", Times: 3},
			"429":    {Code: "rate_limit_exceeded", Times: 3},
		} {
			t.Run(request+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim := hcloudsim.New(like(nil))
					before := kept(t, sim)
					fault.Match = request
					if err := sim.Inject(fault); err != nil {
						t.Fatal(err)
					}
					p := projectOver(t, sim.Transport())
					for _, o := range Run(t.Context(), benchOf(p), apiFacts()) {
						if fact, _ := measure.Of(o.Fact); o.Seen == "" || o.Why != "" {
							t.Errorf("not found: %s (%s)", describe(o), fact.Question)
						}
					}
					if _, err := p.Sweep(t.Context()); err != nil || kept(t, sim) != before {
						t.Errorf("%v\nleft:\n%s", err, kept(t, sim))
					}
				})
			})
		}
	}
}

// mute is a program that never answers.
type mute struct{ Program }

func (mute) Ready(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// silence prepares mute programs.
type silence struct{}

func (silence) Prepare(string) (string, func(netip.Addr) Program, error) {
	return "#!/bin/true", func(netip.Addr) Program { return mute{} }, nil
}

// TestServersThatNeverAnswerDontTakeTheWholeTime has no program that answers: each fact that needs one
// says so, and the other facts are found.
func TestServersThatNeverAnswerDontTakeTheWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		b := benchOf(projectOver(t, sim.Transport()))
		b.Programs = silence{}
		began := time.Now()
		for _, o := range Run(t.Context(), b, append(packetIDs(), measure.ActionTimes)) {
			if o.Fact == measure.ActionTimes {
				if o.Seen == "" {
					t.Errorf("not found: %s", describe(o))
				}
			} else if o.Seen != "" || !strings.Contains(o.Why, "--api-only") {
				t.Errorf("%s", describe(o))
			}
		}
		if took := time.Since(began); took > 2*bootingSimulated {
			t.Errorf("it took %s", took)
		}
	})
	real4 := &Server{Public4: netip.MustParseAddr("203.0.113.7")}
	if most, needs := real4.boot(); most != booting || !strings.Contains(needs, "--image") {
		t.Errorf("a real server may take %s: %s", most, needs)
	}
}

// TestATypeThatIsSoldOutIsTold says what to choose instead.
func TestATypeThatIsSoldOutIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		err := sim.Inject(hcloudsim.Fault{Match: "POST /servers", Code: "resource_unavailable", Times: -1})
		if err != nil {
			t.Fatal(err)
		}
		b := benchOf(projectOver(t, sim.Transport()))
		for _, o := range Run(t.Context(), b, []measure.FactID{measure.AddressReuse}) {
			if o.Seen != "" || !strings.Contains(o.Why, "--server-type") {
				t.Errorf("%s", describe(o))
			}
		}
	})
}

// TestATiredCloudIsNoAnswer has errors that say nothing about what was asked for.
func TestATiredCloudIsNoAnswer(t *testing.T) {
	for _, code := range []string{
		"unavailable", "server_error", "maintenance", "timeout", "bad_gateway", "forbidden", "rate_limit_exceeded",
		"locked", "conflict",
	} {
		for fact, request := range map[measure.FactID]string{
			measure.Busy: "add_route", measure.EffectShows: "add_route", measure.TargetsPerServer: "add_target",
			measure.FloatingReassign: "assign",
		} {
			synctest.Test(t, func(t *testing.T) {
				sim := hcloudsim.New(like(nil))
				match := "POST /{kind}/{id}/actions/" + request
				err := sim.Inject(hcloudsim.Fault{Match: match, Code: code, Times: -1})
				if err != nil {
					t.Fatal(err)
				}
				b := benchOf(projectOver(t, sim.Transport()))
				for _, o := range Run(t.Context(), b, []measure.FactID{fact}) {
					if o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, code) {
						t.Errorf("%s with every %s: %s", code, request, describe(o))
					}
				}
			})
		}
	}
}
