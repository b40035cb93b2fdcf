package hetzner

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// Being asked about along with others, before its time, tells of an action that
// it still runs and nothing about the guess.
func TestAskedAlongIsNotTooEarly(t *testing.T) {
	start := time.Unix(1000, 0)
	it := &watch{start: start, due: start.Add(time.Second), gap: time.Second}
	it.running(start.Add(300 * time.Millisecond))
	if it.early != 0 || !it.due.Equal(start.Add(time.Second)) || it.seen != 300*time.Millisecond {
		t.Errorf("asked along: %d early looks, due after %s, seen for %s", it.early, it.due.Sub(start), it.seen)
	}
	it.running(start.Add(time.Second))
	if it.early != 1 || !it.due.Equal(start.Add(1200*time.Millisecond)) {
		t.Errorf("when due: %d early looks, due again after %s", it.early, it.due.Sub(start))
	}
}

func TestPollIntervals(t *testing.T) {
	h := newPollIntervals()
	if got := h.guess("add_route"); got != firstGuess {
		t.Errorf("the first guess is %s, want %s", got, firstGuess)
	}
	h.learn("add_route", 2, 0, 900*time.Millisecond)
	if got := h.guess("add_route"); got != 900*time.Millisecond {
		t.Errorf("after looks that came too early the guess is %s, want what it took", got)
	}
	h.learn("add_route", 0, 895*time.Millisecond, 900*time.Millisecond)
	if got := h.guess("add_route"); got != 895*time.Millisecond {
		t.Errorf("the guess is %s, though the action was seen to run longer", got)
	}
	for range 20 {
		h.learn("add_route", 0, 0, h.guess("add_route"))
	}
	if got := h.guess("add_route"); got != shortestGap {
		t.Errorf("the guess for what is always over is %s, want %s", got, shortestGap)
	}
	if got := h.guess("delete_route"); got != firstGuess {
		t.Errorf("the guess for another command is %s, want %s", got, firstGuess)
	}
}

// Other programs spend, too: between answers, half of the refill may be theirs.
func TestTheRefillIsNotAllOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDoor(t, hcloudsim.Options{}).rt.budget
		place, err := b.spend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.told(place, &http.Response{StatusCode: http.StatusOK, Header: http.Header{
			"Ratelimit-Limit": {strconv.Itoa(3600)}, "Ratelimit-Remaining": {"0"},
		}}, nil)
		time.Sleep(time.Minute) // in which 60 come back
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.refill(time.Now()); b.left < 20 || b.left > 30.001 {
			t.Errorf("a minute after there was nothing, %v requests are counted on, want half of 60", b.left)
		}
	})
}
