package controller

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

const (
	firstRetry   = 5 * time.Second
	longestRetry = time.Hour
	// reissuePeriod is between two attempts to obtain a certificate: the authority counts failed ones.
	// A process that does not know when the last one was waits for firstReissue.
	firstReissue  = time.Hour
	reissuePeriod = 24 * time.Hour
)

// backoff paces what the cloud refuses: each operation on each load balancer is repeated after some
// seconds, then less and less often, and at once when it becomes another one. It does not outlive
// the process.
type backoff struct {
	mu      sync.Mutex
	refused map[lb.Owner]map[string]*refused // by the operation's title
}

type refused struct {
	op    string // with all that was asked for
	err   error
	delay time.Duration
	until time.Time
	// hinted: the server list says that the target can be reached, and the cloud was asked since.
	hinted bool
}

func newBackoff() *backoff { return &backoff{refused: make(map[lb.Owner]map[string]*refused)} }

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

// title is what an operation is known by: moving to a network is joining it.
func title(op lb.Op) string {
	if move, ok := op.(lb.MoveNetwork); ok {
		op = move.Join
	}
	return lb.Title(op)
}

// of returns why an operation was refused and is not to be repeated yet, or nil. An attempt to obtain
// a certificate was just made when it is known to have failed.
func (b *backoff) of(owner lb.Owner, op lb.Op) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.refused[owner][title(op)]
	if _, retries := op.(lb.RetryCertificate); retries && known == nil {
		b.put(owner, op, &refused{op: contents(op), err: errTriedToday, until: time.Now().Add(firstReissue)})
		return errTriedToday
	}
	if known == nil || known.op != contents(op) || !time.Now().Before(known.until) {
		return nil
	}
	return known.err
}

func (b *backoff) put(owner lb.Owner, op lb.Op, r *refused) {
	if b.refused[owner] == nil {
		b.refused[owner] = make(map[string]*refused)
	}
	b.refused[owner][title(op)] = r
}

// record keeps that an operation was refused.
func (b *backoff) record(owner lb.Owner, op lb.Op, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delay, hinted := firstRetry, false
	if _, swap := op.(lb.Swap); swap {
		delay = longestRetry // each attempt takes something away first
	}
	if known := b.refused[owner][title(op)]; known != nil && known.op == contents(op) {
		delay, hinted = min(2*known.delay, longestRetry), known.hinted
	}
	if _, retries := op.(lb.RetryCertificate); retries {
		delay = reissuePeriod
	}
	b.put(owner, op, &refused{op: contents(op), err: err, delay: delay, until: time.Now().Add(delay), hinted: hinted})
}

// succeeded forgets an operation.
func (b *backoff) succeeded(owner lb.Owner, op lb.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.refused[owner], title(op))
}

// forget forgets an owner.
func (b *backoff) forget(owner lb.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.refused, owner)
}

// next is after how long the first of an owner's operations is repeated; 0: none was refused.
func (b *backoff) next(owner lb.Owner) (next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.refused[owner] {
		if d := time.Until(r.until); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	return next
}

// knows reports whether any load balancer was refused an operation on a target.
func (b *backoff) knows(op lb.Op) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ops := range b.refused {
		if ops[title(op)] != nil {
			return true
		}
	}
	return false
}

// hint has an operation repeated at once when the server list shows that it can succeed now. A list
// that contradicts the cloud is believed once.
func (b *backoff) hint(op lb.Op, can bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ops := range b.refused {
		if r := ops[title(op)]; r != nil {
			if can && !r.hinted {
				r.until = time.Time{}
			}
			r.hinted = can
		}
	}
}

// askAgain has targets asked for again at once that were refused: something about nodes changed that
// may mend it.
func (b *backoff) askAgain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ops := range b.refused {
		for _, r := range ops {
			var rejected *lb.RejectedError
			if errors.As(r.err, &rejected) && rejected.Target {
				r.until = time.Time{}
			}
		}
	}
}

// nameFreed lets those repeat at once what was refused them who ask for a name, and returns them.
func (b *backoff) nameFreed() (owners []lb.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for owner, ops := range b.refused {
		for _, r := range ops {
			if isNotOwned(r.err) {
				r.until = time.Time{}
				owners = append(owners, owner)
			}
		}
	}
	return owners
}

// explain keeps a better reason for a refusal.
func (b *backoff) explain(owner lb.Owner, op lb.Op, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.refused[owner][title(op)]; known != nil {
		known.err = err
	}
}
