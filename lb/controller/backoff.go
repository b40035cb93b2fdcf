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
	// reissuePeriod is between two attempts to obtain a certificate: the authority counts failed
	// ones. A process that does not know when the last one was waits for firstReissue.
	firstReissue  = time.Hour
	reissuePeriod = 24 * time.Hour
)

// backoff paces what the cloud refuses: each operation on each load balancer is repeated after some
// seconds, then less and less often, and at once when it becomes another one. It does not outlive
// the process.
type backoff struct {
	mu      sync.Mutex
	refused map[operation]*refused
}

type operation struct {
	owner lb.Owner
	title string
}

type refused struct {
	op    string // with all that was asked for
	err   error
	delay time.Duration
	until time.Time
	// hinted: the server list says that the target can be reached, and the cloud was asked since.
	hinted bool
}

func newBackoff() *backoff { return &backoff{refused: make(map[operation]*refused)} }

// contents is what makes an operation another one. A creation is the same while nodes come and go,
// and a move while targets do.
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

// title identifies an operation: moving to a network is joining it.
func title(op lb.Op) string {
	if move, ok := op.(lb.MoveNetwork); ok {
		op = move.Join
	}
	return lb.Title(op)
}

// of returns why an operation was refused and is not to be repeated yet, or nil. An attempt to
// obtain a certificate was just made when it is known to have failed.
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
		next.delay = longestRetry // each attempt takes something away first
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

// next is after how long the first of an owner's operations is repeated; 0: none was refused.
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

// wasRefused reports whether any load balancer was refused an operation on a target.
func (b *backoff) wasRefused(op lb.Op) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.anywhere(op)) > 0
}

// hint has an operation repeated at once when the server list shows that it can succeed now. A list
// that contradicts the cloud is believed once.
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

// reset has operations repeated at once that were refused for one of these reasons, and returns
// whose they are.
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

// explain keeps a better reason for a refusal.
func (b *backoff) explain(owner lb.Owner, op lb.Op, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.refused[operation{owner, title(op)}]; known != nil {
		known.err = err
	}
}

// isRefusedTarget reports whether the cloud found fault with a target.
func isRefusedTarget(err error) bool {
	var rejected *lb.RejectedError
	return errors.As(err, &rejected) && rejected.Target
}

func isNotOwned(err error) bool { return errors.Is(err, lb.ErrNotOwned) }
