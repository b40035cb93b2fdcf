package survey

import (
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/lb"
)

func start() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// stepped walks a pace through seconds of a cluster and returns how often each part was
// looked at.
func stepped(seconds, cost int, changes func(second int) bool) map[Part]int {
	p, looks := newPace(start()), map[Part]int{}
	for s := 1; s <= seconds; s++ {
		if changes(s) {
			p.changed()
		}
		due := p.due(start().Add(time.Duration(s)*time.Second), Everything&^watchedParts, cost)
		for one := PartConfig; one <= PartActions; one <<= 1 {
			if due&one != 0 {
				looks[one]++
			}
		}
	}
	return looks
}

func always(int) bool { return true }
func never(int) bool  { return false }

// However busy a cluster is and however many servers it has, the page takes a quarter of
// the project's requests at most, beside what it may spend at its start.
func TestThePageLeavesTheCloudToOthers(t *testing.T) {
	for _, cost := range []int{3, 4, 7, 14, 40, 119, 120, 500} {
		for name, changes := range map[string]func(int) bool{"busy": always, "quiet": never} {
			looks := stepped(3600, cost, changes)
			spent := looks[PartServers] * min(cost, creditMost)
			if spent > 900+creditMost || looks[PartServers] < 7 {
				t.Errorf("%s, %d requests a look: %d looks, %d requests in an hour", name, cost, looks[PartServers], spent)
			}
			if looks[PartNetwork] != looks[PartServers] || looks[PartLoadBalancers] != looks[PartServers] {
				t.Errorf("the parts of the cloud are looked at apart: %v", looks)
			}
		}
	}
}

func TestWhatChangesIsLookedAtSoon(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes func(int) bool
		seconds int
		part    Part
		want    int
	}{
		{"the ledger after a change", func(s int) bool { return s == 3 }, 4, PartLedger, 1},
		{"the ledger without one", never, 9, PartLedger, 0},
		{"the ledger now and then", never, 30, PartLedger, 3},
		{"the cloud after a change", func(s int) bool { return s == 1 }, 3, PartServers, 1},
		{"the cloud without one", never, 14, PartServers, 0},
		{"the cloud now and then", never, 30, PartServers, 2},
		{"the configuration", always, 120, PartConfig, 4},
		{"what is watched", always, 60, PartNodes, 0},
	} {
		if got := stepped(c.seconds, 4, c.changes)[c.part]; got != c.want {
			t.Errorf("%s: %d looks in %d s, want %d", c.name, got, c.seconds, c.want)
		}
	}
}

// next never sleeps over what is due, and never spins.
func TestNextIsWhenSomethingIsDue(t *testing.T) {
	p, now, looks := newPace(start()), start(), 0
	for now.Before(start().Add(10 * time.Minute)) {
		wait := p.next(now, Everything, 10)
		if early := p.due(now.Add(wait-time.Millisecond), Everything, 10); early != 0 {
			t.Fatalf("%s is due before %s", early, wait)
		}
		if now = now.Add(wait); p.due(now, Everything, 10) == 0 {
			t.Fatalf("nothing is due after %s", wait)
		}
		looks++
	}
	if looks > 200 {
		t.Errorf("%d looks in ten minutes", looks)
	}
}

func TestCostCountsPages(t *testing.T) {
	s := &Snapshot{}
	if got := s.cost(); got != 2 {
		t.Errorf("an empty project: %d", got)
	}
	s.Config.Network, s.Servers, s.LoadBalancers = "cluster", make([]cloud.Server, 500), make([]lb.State, 3)
	if got := s.cost(); got != 1+11+1+1 {
		t.Errorf("500 servers: %d", got)
	}
}
