package controller

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

const (
	firstRetry   = 5 * time.Second
	longestRetry = time.Hour
	// reissuePeriod is the time between attempts to obtain a certificate: the authority limits
	// failures. A process that has not observed the last attempt waits for firstReissue.
	firstReissue  = time.Hour
	reissuePeriod = 24 * time.Hour
)

// backoff delays refused operations of each load balancer with an increasing delay; a changed
// operation is not delayed. It does not survive a restart.
type backoff struct {
	mu      sync.Mutex
	refused map[operation]*refused
}

type operation struct {
	owner lb.Owner
	title string
}

type refused struct {
	op    string // with its arguments
	err   error
	delay time.Duration
	until time.Time
	// hinted: by the server list, the target is reachable, and the operation was retried since.
	hinted bool
}

func newBackoff() *backoff { return &backoff{refused: make(map[operation]*refused)} }

// contents identifies an operation with its arguments. A creation is the same when nodes change,
// and a move when targets do.
func contents(op lb.Op) string {
	switch o := op.(type) {
	case lb.Create:
		o.Spec.Targets, o.Spec.Nodes, o.Spec.Excluded, o.Spec.Managed = nil, nil, nil, nil
		op = o
	case lb.MoveNetwork:
		op = o.Join
	}
	return fmt.Sprintf("%#v", op)
}

// title identifies an operation: a move to a network is the same as joining it.
func title(op lb.Op) string {
	if move, ok := op.(lb.MoveNetwork); ok {
		op = move.Join
	}
	return lb.Title(op)
}

// of returns the refusal of an operation that must not be repeated yet, or nil. The first
// lb.RetryCertificate counts as refused just now.
func (b *backoff) of(owner lb.Owner, op lb.Op) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := operation{owner, title(op)}
	known := b.refused[key]
	if _, retries := op.(lb.RetryCertificate); retries && known == nil {
		known = &refused{op: contents(op), err: errTriedToday, until: time.Now().Add(firstReissue)}
		b.refused[key] = known
	}
	if known == nil || known.op != contents(op) || !time.Now().Before(known.until) {
		return nil
	}
	return known.err
}

func (b *backoff) record(owner lb.Owner, op lb.Op, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := &refused{op: contents(op), err: err, delay: firstRetry}
	if _, swap := lb.SwapOf(op); swap {
		next.delay = longestRetry // each attempt interrupts traffic
	}
	key := operation{owner, title(op)}
	if known := b.refused[key]; known != nil && known.op == next.op {
		next.delay, next.hinted = min(2*known.delay, longestRetry), known.hinted
	}
	if _, retries := op.(lb.RetryCertificate); retries {
		next.delay = reissuePeriod
	}
	next.until = time.Now().Add(next.delay)
	b.refused[key] = next
}

func (b *backoff) succeeded(owner lb.Owner, op lb.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.refused, operation{owner, title(op)})
}

func (b *backoff) forget(owner lb.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.refused, func(key operation, _ *refused) bool { return key.owner == owner })
}

// next returns the delay until the first of an owner's operations may be repeated; 0: no refusal.
func (b *backoff) next(owner lb.Owner) (next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, r := range b.refused {
		if key.owner == owner {
			next = sooner(next, max(time.Until(r.until), 0))
		}
	}
	return next
}

// anywhere returns the refusals of an operation on a target by any load balancer.
func (b *backoff) anywhere(op lb.Op) (found []*refused) {
	for key, r := range b.refused {
		if key.title == title(op) {
			found = append(found, r)
		}
	}
	return found
}

func (b *backoff) wasRefused(op lb.Op) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.anywhere(op)) > 0
}

// hint permits an immediate retry of an operation when the server list shows that it can succeed.
// A list that contradicts the cloud has an effect only once.
func (b *backoff) hint(op lb.Op, can bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.anywhere(op) {
		if can && !r.hinted {
			r.until = time.Time{}
		}
		r.hinted = can
	}
}

// reset permits an immediate retry of operations refused for a reason, and returns their owners.
func (b *backoff) reset(reason func(error) bool) (owners []lb.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, r := range b.refused {
		if reason(r.err) {
			r.until = time.Time{}
			owners = append(owners, key.owner)
		}
	}
	return owners
}

func (b *backoff) explain(owner lb.Owner, op lb.Op, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.refused[operation{owner, title(op)}]; known != nil {
		known.err = err
	}
}

func isRefusedTarget(err error) bool {
	var rejected *lb.RejectedError
	return errors.As(err, &rejected) && rejected.Target
}

func isNotOwned(err error) bool { return errors.Is(err, lb.ErrNotOwned) }
