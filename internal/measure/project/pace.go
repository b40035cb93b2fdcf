package project

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// pace spreads requests so that half of the project's budget is left to others: it belongs to the
// controllers of a cluster too. Above one half requests aren't held back; below, they are sent half
// as fast as the budget fills. For those that clean up it is an eighth that is left.
type pace struct {
	mu sync.Mutex
	// limit is how many requests a full budget holds, left how many it held at since; it fills in
	// an hour. 0: no reply has told.
	limit, left float64
	since       time.Time
	// next is when the next request may be sent.
	next time.Time
	// told: that requests are held back has been said.
	told bool
}

// heldBack is why a request was not sent.
type heldBack struct {
	left, limit int
	urgent      bool
}

func (h heldBack) Error() string {
	part := "half"
	if h.urgent {
		part = "an eighth"
	}
	return fmt.Sprintf("rate limit: %d of %d requests are left, and %s is for others: wait, or stop the other program",
		h.left, h.limit, part)
}

// worthSaying is how long a request is held back at least, so that it is said.
const worthSaying = 5 * time.Second

// urgent marks requests that clean up: what they remove costs.
type urgent struct{}

// floor and floorUrgent are the parts of the budget below which requests are held back.
const floor, floorUrgent = 1. / 2, 1. / 8

// wait waits until a request may be sent. One that can't be within its time isn't waited for, unless
// it cleans up, and so may come to be sent after all. say is told once that others must wait.
func (p *pace) wait(ctx context.Context, say func(string)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	hurry := ctx.Value(urgent{}) != nil
	end, limited := ctx.Deadline()
	if !limited || hurry {
		end = time.Time{}
	}
	delay, why := p.reserve(time.Now(), end, hurry)
	switch {
	case delay < 0:
		return why
	case delay == 0:
		return nil
	case delay >= worthSaying && p.tell():
		say(why.Error())
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), why)
	}
}

// tell reports whether it has not been said yet.
func (p *pace) tell() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.told
	p.told = true
	return first
}

// reserve is how long to wait, and why; negative: it would be longer than to the end, if there is
// one.
func (p *pace) reserve(now, end time.Time, urgent bool) (time.Duration, heldBack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit == 0 {
		return 0, heldBack{}
	}
	each := time.Duration(float64(time.Hour) / p.limit) // in which the budget fills by one
	p.left = min(p.limit, p.left+float64(now.Sub(p.since))/float64(each))
	p.since = now
	least := p.limit * floor
	if urgent {
		least = p.limit * floorUrgent
	}
	if p.left > max(least, 1) {
		p.left--
		return 0, heldBack{}
	}
	why := heldBack{left: int(max(p.left, 0)), limit: int(p.limit), urgent: urgent}
	at := now
	if p.left < 1 { // none is left, or those are promised that come next
		at = now.Add(time.Duration((1 - p.left) * float64(each)))
	}
	if p.next.After(at) {
		at = p.next
	}
	if !end.IsZero() && at.After(end) {
		return -1, why
	}
	p.next = at.Add(2 * each)
	p.left--
	return at.Sub(now), why
}

// took takes in what a reply tells of the budget; nil: there was none.
func (p *pace) took(resp *http.Response) {
	if resp == nil {
		return
	}
	limit, err := strconv.Atoi(resp.Header.Get("RateLimit-Limit"))
	left, err2 := strconv.Atoi(resp.Header.Get("RateLimit-Remaining"))
	if err != nil || err2 != nil || limit <= 0 || left < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit, p.left, p.since = float64(limit), float64(left), time.Now()
}
