package hetzner

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// A poll together with others, before an action is due, shows that it still runs and nothing about
// its usual duration.
func TestAPollWithOthersIsNotTooEarly(t *testing.T) {
	start := time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	it := &watch{started: started{at: start}, due: after(time.Second), gap: 80 * time.Millisecond}
	it.running(after(300*time.Millisecond), after(400*time.Millisecond))
	if it.early != 0 || it.due != after(time.Second) || it.seen != after(300*time.Millisecond) {
		t.Errorf("asked along: %d early polls, due after %s, seen at %s", it.early, it.due.Sub(start), it.seen.Sub(start))
	}
	it.running(after(time.Second), after(1010*time.Millisecond))
	if it.early != 1 || it.due != after(1080*time.Millisecond) {
		t.Errorf("when due: %d early polls, due again after %s", it.early, it.due.Sub(start))
	}
	it.running(after(1080*time.Millisecond), after(1300*time.Millisecond))
	if it.due != after(1300*time.Millisecond) {
		t.Errorf("after a slow answer: due again after %s, which is over", it.due.Sub(start))
	}
}

// The learned wait follows the duration of actions and its changes.
func TestPollIntervals(t *testing.T) {
	p := newPollIntervals()
	// poll waits for actions with a duration, and returns how many polls were too early.
	poll := func(actions int, takes time.Duration) (early int) {
		for range actions {
			sent, gap := p.first("add_route")
			running, tooEarly := time.Duration(0), 0
			for ; sent < takes; sent, gap = sent+gap, 2*gap {
				running = sent
				tooEarly++
			}
			p.learn("add_route", tooEarly, running, sent)
			early += tooEarly
		}
		return early
	}
	for _, takes := range []time.Duration{
		300 * time.Millisecond, 2 * time.Second, 0, 40 * time.Millisecond, 900 * time.Millisecond,
	} {
		poll(150, takes)
		if wait, _ := p.first("add_route"); wait < takes*97/100 || wait > takes*103/100+5*time.Millisecond {
			t.Errorf("after 150 actions of %s they are polled after %s", takes, wait)
		}
		if early := poll(100, takes); early > 15 {
			t.Errorf("of 100 polls for actions of %s %d came too early", takes, early)
		}
	}
	if got, _ := p.first("delete_route"); got != firstWait {
		t.Errorf("another command is first polled after %s, want %s", got, firstWait)
	}
}

// If durations vary, polls are spaced so that they cost neither many requests nor much time. An
// optimum with the known distribution takes 1.4 for each action and 500 ms.
func TestPollIntervalsOfVaryingActions(t *testing.T) {
	const runs, actions, most, latest = 50, 100, 1.65, 510 * time.Millisecond
	random := rand.New(rand.NewPCG(1, 0))
	var polls int
	var waited time.Duration
	for range runs {
		p := newPollIntervals()
		for range actions {
			takes := 200*time.Millisecond + time.Duration(random.Int64N(int64(400*time.Millisecond)))
			sent, gap := p.first("add_route")
			running, early := time.Duration(0), 0
			for ; sent < takes; sent, gap = sent+gap, 2*gap {
				running = sent
				early++
			}
			p.learn("add_route", early, running, sent)
			polls += early + 1
			waited += sent
		}
	}
	each, mean := float64(polls)/(runs*actions), waited/(runs*actions)
	t.Logf("%.2f polls for each action, which is found over after %s", each, mean)
	if each > most || mean > latest {
		t.Errorf("want at most %.2f polls for each action, and %s", most, latest)
	}
}

// Other programs spend, too: between responses, half of the refill is left to them.
func TestTheRefillIsNotAllOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDoor(t, hcloudsim.Options{}).rt.budget
		place, err := b.spend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.learn(place, &http.Response{StatusCode: http.StatusOK, Header: http.Header{
			"Ratelimit-Limit": {strconv.Itoa(3600)}, "Ratelimit-Remaining": {"0"},
		}}, nil)
		time.Sleep(time.Minute) // in which 60 are refilled
		b.queue.Change(func(now time.Time) {
			if b.refill(now); b.left < 20 || b.left > 30.001 {
				t.Errorf("a minute after there was nothing, %v requests are counted on, want half of 60", b.left)
			}
		})
	})
}
