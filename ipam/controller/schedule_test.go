package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/underlay-ccm/underlay/internal/kube"
)

var (
	schedules = flag.Int("schedules", 300, "how many random schedules of faults to run")
	firstSeed = flag.Uint64("first-seed", 0, "the seed of the first schedule")
)

// schedulePools are just too small for the Nodes of a schedule, so that what is wrongly
// released is soon handed out again. Two node prefixes of each family are excluded.
var (
	schedulePools      = dualStack(8)
	scheduleExclusions = []string{"10.0.3.0/24", "10.0.6.7/32", "fd00:0:0:4::/63"}
)

const scheduleNodes = 9

// schedule is one random course of events: Nodes come, go, come back and are touched, requests
// and watches fail in every way the fake knows, and the controller is restarted. Everything
// follows from the seed but the order in which goroutines happen to run.
type schedule struct {
	rng   *rand.Rand // for the course of events
	luck  *rand.Rand // for requests and watches; used under the fake's lock
	api   *fakeAPI
	proc  *process
	alter func(*Controller)
	t     *testing.T
}

// runSchedule returns what went wrong.
func runSchedule(t *testing.T, seed uint64, alter func(*Controller)) (problems []string) {
	synctest.Test(t, func(t *testing.T) {
		s := &schedule{
			rng: rand.New(rand.NewPCG(seed, 1)), luck: rand.New(rand.NewPCG(seed, 2)),
			api: newFakeAPI(), alter: alter, t: t,
		}
		s.api.inject(s.fault)
		s.api.lag = s.lag
		s.start()
		for range 80 {
			s.step()
			pass(time.Duration(s.rng.IntN(8000)) * time.Millisecond)
		}
		s.calm()
		problems = s.problems()
		if len(problems) > 0 {
			problems = append(problems, s.api.String())
		}
		s.proc.stop()
	})
	return problems
}

func (s *schedule) start() {
	var exclusions []netip.Prefix
	for _, text := range scheduleExclusions {
		exclusions = append(exclusions, pfx(text))
	}
	s.proc = start(s.t, s.api, schedulePools, s.alter, exclusions...)
}

// step does one thing to the cluster.
func (s *schedule) step() {
	name := fmt.Sprint("n", s.rng.IntN(scheduleNodes))
	_, exists := s.api.live()[name]
	switch roll := s.rng.IntN(40); {
	case roll == 0:
		s.proc.stop()
		// What was on its way when the process ended arrives before the next one starts:
		// against later arrivals, only reservations that outlive the process would help.
		s.api.settle()
		s.start()
	case roll < 4:
		s.api.stall()
	case roll < 8:
		s.api.resume()
	case roll == 8 && !exists:
		s.api.create(name, fmt.Sprintf("192.168.%d.0/24", s.rng.IntN(200)))
	case !exists:
		s.api.create(name)
	case roll < 16:
		s.api.delete(name)
	case roll < 20:
		s.api.delete(name)
		s.api.create(name)
	default:
		s.api.heartbeat(name)
	}
}

// fault draws what happens to a request.
func (s *schedule) fault(method string) fault {
	var f fault
	switch s.luck.IntN(12) {
	case 0:
		f.refuse = true
	case 1, 2:
		f.lose = true
	case 3:
		f.delay = time.Duration(s.luck.IntN(60)) * time.Second
	case 4:
		f.answer = apierrors.NewConflict(nodeResource, "any", errors.New("fake: conflict"))
	case 5:
		if method == "PATCH" {
			f.late = time.Duration(1+s.luck.IntN(60)) * time.Second
		}
	case 6:
		f.page = true
	}
	return f
}

func (s *schedule) lag() time.Duration {
	if s.luck.IntN(3) > 0 {
		return 0
	}
	return time.Duration(s.luck.IntN(3000)) * time.Millisecond
}

// calm ends all faults and gives everything the time to settle.
func (s *schedule) calm() {
	s.api.mu.Lock()
	s.api.faults, s.api.lag = nil, nil
	s.api.mu.Unlock()
	s.api.resume()
	pass(time.Hour)
	s.proc.stop()
}

// problems compares what the API has with what the stopped controller believes.
func (s *schedule) problems() []string {
	problems := slices.Clone(s.api.overlap)
	ledger := s.proc.decider.ledger
	without, inPools := 0, 0
	for name, node := range s.api.live() {
		prefixes, _ := kube.PodCIDRs(node)
		h, ok := ledger.Lookup(string(node.UID))
		switch {
		case len(prefixes) == 0:
			without++
			if ok {
				problems = append(problems, fmt.Sprintf("%s has no podCIDRs, though %v are reserved for it", name, h.Prefixes))
			}
		case !ok || !h.Observed || !slices.Equal(h.Prefixes, prefixes):
			problems = append(problems, fmt.Sprintf("%s has %v, the ledger says %v", name, prefixes, h))
		}
		if s.api.byUs[node.UID] {
			inPools++
		}
		if s.api.writes[node.UID] > 1 {
			problems = append(problems, fmt.Sprintf("%s was written %d times", name, s.api.writes[node.UID]))
		}
	}
	for _, c := range ledger.Counts() {
		if c.Allocated != inPools {
			problems = append(problems, fmt.Sprintf("leaked: %d of %s are held, %d Nodes have one", c.Allocated, c.Pool, inPools))
		}
	}
	if room := ledger.Room(); without > 0 && room > 0 {
		problems = append(problems, fmt.Sprintf("%d Nodes wait, though there is room for %d", without, room))
	}
	if d := s.proc.decider; len(d.nodes) != len(s.api.live()) || len(d.ready) > 0 {
		problems = append(problems, fmt.Sprintf("the decider knows %d Nodes of %d, %d jobs left", len(d.nodes), len(s.api.live()), len(d.ready)))
	}
	return problems
}

func TestNoScheduleOfFaultsMakesAnOverlap(t *testing.T) {
	for i := range *schedules {
		seed := *firstSeed + uint64(i)
		if problems := runSchedule(t, seed, nil); len(problems) > 0 {
			t.Fatalf("seed %d (run it with -schedules 1 -first-seed %d):\n%s", seed, seed, strings.Join(problems, "\n"))
		}
	}
}

// The same schedules must catch a controller that takes an error for "not applied", or a 404 of
// anyone for the Node's absence.
func TestSchedulesCatchAReleaseOnUnknownOutcome(t *testing.T) {
	for name, mistaken := range map[string]func(error) bool{
		"on any error": func(error) bool { return true },
		"on any 404":   apierrors.IsNotFound,
	} {
		t.Run(name, func(t *testing.T) {
			broken := func(c *Controller) {
				attempt := c.attempt
				c.attempt = func(ctx context.Context, j job) finding {
					f := attempt(ctx, j)
					if f.outcome == unknown && mistaken(f.err) {
						f.outcome = gone
					}
					return f
				}
			}
			for i := range *schedules {
				for _, problem := range runSchedule(t, *firstSeed+uint64(i), broken) {
					if strings.Contains(problem, "both have") {
						t.Logf("caught by schedule %d: %s", i, problem)
						return
					}
				}
			}
			t.Errorf("%d schedules did not notice prefixes released on an unknown outcome", *schedules)
		})
	}
}
