package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

var (
	schedules = flag.Int("schedules", 2000/slowdown, "how many random schedules of faults to run")
	firstSeed = flag.Uint64("first-seed", 0, "the seed of the first schedule")
	logCalls  = flag.Bool("log-calls", false, "put every request into the history of a failed schedule")
)

const (
	scheduleNodes      = 7
	scheduleSteps      = 24
	scheduleQuarantine = 20 * time.Second
	// scheduleFence is longer than any request of a dead process is in flight.
	scheduleFence = 2 * lateness
)

// schedule is one random course of events. Nodes are created, deleted, recreated and edited.
// Requests and watches fail in every way of the fake. Processes crash, or freeze while another one
// takes over, and resume late. The stored ledger is deleted, damaged, restored and edited by hand,
// the lease is deleted, and pools are reconfigured.
// The seed determines everything except the order in which goroutines run.
type schedule struct {
	rng   *rand.Rand // for the course of events
	luck  *rand.Rand // for requests and watches; used under the fake's lock
	calls int        // one of this many requests fails
	api   *fakeAPI
	t     *testing.T

	procs   []*process // alive; the last holds the lease, the others lost it unnoticed
	pools   int        // index of the configuration of the next process
	latest  int        // that of the latest process
	with    map[*process]int
	started int
	apart   bool              // the prefixes are larger, and in several shards
	damaged map[string]string // keys damaged by hand, with their old values
	// damagedIn is the ConfigMap that has them.
	damagedIn string
	// saved is an older copy of the stored ledger; nil: none.
	saved map[string]map[string]string
	// anew means that the lease was deleted, and the next leader creates another one.
	anew    bool
	variant variant
}

// A variant is a controller with a deliberate flaw: in its requests and responses, or in its
// configuration.
type variant struct {
	line     func(http.RoundTripper) http.RoundTripper
	settings []setting
	// proxied makes a proxy, which has no Nodes, reply to every other GET of a Node.
	proxied bool
}

// runSchedule returns the problems.
func runSchedule(t *testing.T, seed uint64, v variant) (problems []string) {
	synctest.Test(t, func(t *testing.T) {
		s := &schedule{
			rng: rand.New(rand.NewPCG(seed, 1)), luck: rand.New(rand.NewPCG(seed, 2)),
			api: newFakeAPI(), damaged: map[string]string{}, with: map[*process]int{}, variant: v, t: t,
		}
		s.calls = 3 + s.rng.IntN(12)
		s.pools = s.rng.IntN(2) * s.rng.IntN(len(schedulePools))
		s.apart = s.rng.IntN(2) == 0
		s.api.forbidden = prefixes(s.exclusions()...)
		s.api.invariants.quarantine, s.api.routesMatter = scheduleQuarantine, true
		if s.rng.IntN(4) == 0 {
			s.api.inject(s.fault)
		}
		s.api.Lag = s.lag
		s.start()
		pass(time.Second) // three of four ledgers are made without faults
		s.api.inject(s.fault)
		for range scheduleSteps {
			s.step()
			pass(time.Duration(s.rng.IntN(8000)) * time.Millisecond)
			s.bury()
		}
		s.calm()
		problems = s.problems()
		if len(problems) > 0 {
			problems = append(problems, s.api.String())
		}
		s.stopAll()
	})
	return problems
}

// start makes a new process the leader.
func (s *schedule) start() {
	if s.apart && s.started > 0 && s.pools != s.latest {
		// A former leader with other pools could record a prefix of a pool that the new one lacks,
		// in a ConfigMap that the new one doesn't write soon: no two leaders with pools that
		// contradict each other may be followed by one that must have both.
		s.stopAll()
		pass(lateness)
	}
	s.latest = s.pools
	s.started++
	number, first := s.started, s.started == 1 || s.anew
	s.anew = false
	settings := append([]setting{
		excluding(s.exclusions()...), quarantine(scheduleQuarantine), withRouted(s.api.routed),
		func(c *Config) {
			c.Own = s
			c.Fence = scheduleFence
			c.First = func(context.Context) (bool, error) { return first && s.started == number, nil }
		},
	}, s.variant.settings...)
	line := http.RoundTripper(s.api)
	if s.variant.line != nil {
		line = s.variant.line(line)
	}
	s.note("process %d starts with pools %d", s.started, s.pools)
	p := start(s.t, line, s.poolsOf(s.pools), settings...)
	s.procs, s.with[p] = append(s.procs, p), s.pools
}

func (s *schedule) note(format string, args ...any) {
	s.api.Lock()
	defer s.api.Unlock()
	s.api.note(format, args...)
}

func (s *schedule) leader() *process { return s.procs[len(s.procs)-1] }

// step applies one event to the cluster.
func (s *schedule) step() {
	switch roll := s.rng.IntN(100); {
	case roll < 18:
		s.processStep(roll)
	case roll < 24:
		s.api.stall()
	case roll < 32:
		s.api.resume()
	case roll < 38:
		s.ledgerStep(roll)
	case roll < 40:
		s.leaseStep(roll)
	case roll < 42:
		s.api.removeStaleRoutes()
	case roll < 45:
		pass(scheduleQuarantine)
	default:
		s.nodeStep(roll)
	}
}

// processStep applies one event to the controller's processes.
func (s *schedule) processStep(roll int) {
	former := s.procs[s.rng.IntN(len(s.procs))]
	switch {
	case roll < 5:
		s.note("the leader is killed")
		s.leader().connection.die()
	case roll < 9 && len(s.procs) < 3:
		s.note("the leader freezes, another takes over")
		s.leader().connection.freeze()
		s.start()
	case roll < 10:
		s.note("the leader freezes for a moment")
		s.leader().connection.freeze()
	case roll < 13:
		s.note("everybody wakes")
		for _, p := range s.procs {
			p.connection.thaw()
		}
	case roll < 15:
		if former != s.leader() {
			s.note("a former leader ends")
			former.stop()
		}
	default:
		s.pools = s.rng.IntN(len(schedulePools))
		if s.rng.IntN(2) == 0 {
			s.leader().stop()
		}
		if len(s.procs) < 3 || s.rng.IntN(2) == 0 {
			s.start()
		}
	}
}

// bury forgets processes that ended, and starts a new leader if none is left. A process with pools
// that contradict the stored ledger reports it, at the start by ending: then the next one gets
// other pools.
func (s *schedule) bury() {
	var alive []*process
	for _, p := range s.procs {
		contradicted := len(p.events.of(ledgerName+" Warning LedgerDamaged pool")) > 0
		if contradicted {
			p.stop()
		}
		select {
		case <-p.ended:
			p.stop()
			if p.err != nil || contradicted {
				s.note("a process ends: %v", p.err)
				s.pools = (s.with[p] + 1) % len(schedulePools)
			}
		default:
			alive = append(alive, p)
		}
	}
	s.procs = alive
	if len(s.procs) == 0 {
		s.start()
	}
}

// ledgerStep edits the ConfigMaps as users do.
func (s *schedule) ledgerStep(roll int) {
	names := s.api.holders()
	switch {
	case roll < 33:
		// Processes without the lease have ended before the fence is over: the fence exists for
		// that.
		for _, p := range s.procs[:len(s.procs)-1] {
			p.stop()
		}
		lost := ledgerName
		if s.rng.IntN(2) == 0 {
			lost = ObjectName(s.rng.IntN(4))
		}
		s.api.deleteObject(lost)
		if lost == s.damagedIn {
			clear(s.damaged)
		}
		if s.rng.IntN(2) == 0 {
			s.leader().connection.die()
		}
	case roll < 35 && len(names) > 0 && len(s.damaged) == 0:
		name := names[s.rng.IntN(len(names))]
		object := s.api.objectOf(name)
		s.damagedIn = object
		s.api.editObject(object, func(data map[string]string) {
			s.damaged[name] = data[name]
			data[name] += " what=is-this"
		})
	case roll < 37:
		s.repair()
	default:
		// Add a record without a Node, of a prefix without a record.
		block := s.prefix(fmt.Sprintf("10.0.%d.0/24", s.rng.IntN(4)))
		s.api.Lock()
		whole := s.api.ledger.whole()
		s.api.Unlock()
		if !whole {
			return // it would create a ledger that looks complete
		}
		for _, record := range s.api.entries() {
			for _, word := range strings.FieldsFunc(record, func(c rune) bool { return strings.ContainsRune(" ,=@", c) }) {
				if p, err := netip.ParsePrefix(word); err == nil && p.Overlaps(block) {
					return
				}
			}
		}
		name := ObjectName(int(block.Addr().As4()[2] >> 4))
		s.api.editObject(name, func(data map[string]string) {
			data[fmt.Sprint("ghost-", s.rng.IntN(3))] = fmt.Sprintf("uid=ghost-%d %s", s.rng.Int(), block)
		})
	}
}

func (s *schedule) repair() {
	if len(s.damaged) > 0 {
		s.api.editObject(s.damagedIn, func(data map[string]string) {
			for key, value := range s.damaged {
				data[key] = value
			}
		})
		clear(s.damaged)
	}
}

// nodeStep applies one event to a Node. Machines have a provider ID, or get one only later.
func (s *schedule) nodeStep(roll int) {
	i := s.rng.IntN(scheduleNodes)
	name, id := fmt.Sprint("n", i), ""
	if i%2 == 0 {
		id = fmt.Sprintf("cloud://%d", i+s.rng.IntN(2)*100)
	}
	machine := func(n *corev1.Node) {
		n.Spec.ProviderID = id
		if i%3 == 0 {
			n.Labels = webRole
		}
	}
	_, exists := s.api.live()[name]
	switch {
	case !exists && roll == 45:
		s.api.create(name, fmt.Sprintf("192.168.%d.0/24", s.rng.IntN(200)))
	case !exists && roll == 46:
		half := s.prefix(fmt.Sprintf("10.0.%d.128/25", s.rng.IntN(3)))
		s.api.create(name, half.String(), s.prefix(fmt.Sprintf("fd00:0:0:%d::/64", s.rng.IntN(3))).String())
	case !exists:
		s.api.add(name, machine)
	case roll < 65:
		s.api.delete(name)
	case roll < 75:
		s.api.delete(name)
		s.api.add(name, machine)
	case roll < 80 && s.api.live()[name].Spec.ProviderID == "":
		s.api.edit(name, onMachine(fmt.Sprintf("cloud://%d", i)))
	default:
		s.api.heartbeat(name)
	}
}

// fault draws the fault of a request.
func (s *schedule) fault(c call) fault {
	var f fault
	if s.variant.proxied && c.kind == "GET nodes" && s.luck.IntN(2) == 0 {
		f.page = true
		return f
	}
	// Every start reads all ConfigMaps: it would hardly ever end if each read failed as often.
	if s.luck.IntN(s.calls) > 0 || c.kind == "GET configmaps" && s.luck.IntN(8) > 0 {
		return f
	}
	switch s.luck.IntN(10) {
	case 8, 9:
		f.slow = time.Duration(s.luck.IntN(50_000)) * time.Millisecond
	case 0:
		f.refuse = true
	case 1, 2:
		f.lose = true
	case 3:
		f.delay = time.Duration(s.luck.IntN(50_000)) * time.Millisecond
	case 4:
		f.reply = apierrors.NewConflict(nodeResource, "any", errors.New("fake: conflict"))
	case 5, 6:
		if !strings.HasPrefix(c.kind, "GET") && !strings.HasPrefix(c.kind, "LIST") {
			f.late = time.Duration(1+s.luck.IntN(int(lateness/time.Millisecond))) * time.Millisecond
		}
	case 7:
		f.page = true
	}
	return f
}

// ownPrefixes are those of a schedule's machines; two share one, the others have none.
var ownPrefixes = map[string]netip.Prefix{
	"cloud://0": pfx("2001:db8:0:1::/64"), "cloud://2": pfx("2001:db8:0:2::/64"), "cloud://100": pfx("2001:db8:0:2::/64"),
	"cloud://3": pfx("2001:db8:0:3::/64"), "cloud://102": pfx("2001:db8:0:4::/64"), "cloud://5": pfx("2001:db8:0:5::/64"),
}

// OwnPrefix is sometimes late or fails, as the cloud does.
func (s *schedule) OwnPrefix(
	ctx context.Context, node *corev1.Node,
) (netip.Prefix, []netip.Addr, error) {
	s.api.Lock()
	var delay time.Duration
	var err error
	if s.api.faults != nil && s.luck.IntN(s.calls) == 0 {
		delay = time.Duration(s.luck.IntN(50_000)) * time.Millisecond
	} else if s.api.faults != nil && s.luck.IntN(s.calls) == 0 || node.Spec.ProviderID == "" {
		err = errConnection
	}
	s.api.Unlock()
	if !fakeapi.Elapse(ctx.Done(), delay) {
		err = ctx.Err()
	}
	return ownPrefixes[node.Spec.ProviderID], nil, err
}

func (s *schedule) lag() time.Duration {
	switch s.luck.IntN(9) {
	case 0:
		return -1
	case 1, 2:
		return time.Duration(s.luck.IntN(5000)) * time.Millisecond
	}
	return 0
}

// calm ends all faults and lets everything converge. One process remains: the latest leader, or a
// new one.
func (s *schedule) calm() {
	s.note("calm")
	s.repair()
	s.api.Lock()
	s.api.faults, s.api.Lag = nil, nil
	s.api.Unlock()
	s.api.resume()
	for _, p := range s.procs {
		p.connection.thaw()
	}
	pass(time.Duration(s.rng.IntN(100)) * time.Second)
	latest := s.leader()
	s.bury()
	for _, p := range s.procs {
		if p != latest || s.rng.IntN(2) == 0 {
			p.stop()
		}
	}
	for range 2 * len(schedulePools) {
		pass(time.Minute)
		s.bury()
		s.api.removeStaleRoutes()
	}
	pass(10 * time.Minute)
	s.nudge()
	for range 2 * len(schedulePools) {
		pass(time.Minute)
		s.bury()
		s.api.removeStaleRoutes()
	}
	pass(10 * time.Minute)
}

// nudge starts a leader, which reads the last writes of former ones, and makes it write.
func (s *schedule) nudge() {
	s.leader().stop()
	s.bury()
	for _, name := range slices.Sorted(maps.Keys(s.api.live())) {
		if len(s.api.podCIDRs(name)) > 0 {
			s.api.delete(name)
			break
		}
	}
}

func (s *schedule) stopAll() {
	for _, p := range s.procs {
		p.stop()
	}
}

func TestNoScheduleOfFaultsMakesAnOverlapOrALeak(t *testing.T) {
	shards := runtime.GOMAXPROCS(0)
	for shard := range shards {
		t.Run(fmt.Sprint("shard ", shard), func(t *testing.T) {
			t.Parallel()
			for i := shard; i < *schedules; i += shards {
				seed := *firstSeed + uint64(i)
				if problems := runSchedule(t, seed, variant{}); len(problems) > 0 {
					t.Fatalf("seed %d (run it with -schedules 1 -first-seed %d):\n%s", seed, seed, strings.Join(problems, "\n"))
				}
			}
		})
	}
}
