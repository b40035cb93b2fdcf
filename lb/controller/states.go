package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

// freshness limits the age of a read on which writes may be based.
const freshness = 30 * time.Second

// states caches the cluster's load balancers. A list serves all reconciliations after the same
// events; after a write, only the changed load balancer is read again.
type states struct {
	backend lb.Backend
	cluster string

	mu    sync.Mutex
	known map[int64]reading
	// reads are the last reads of single owners; expired is when an owner's earlier reads became
	// outdated; written is when its targets were written: earlier reads have the expected targets
	// and must not be the basis of a write. A later list clears all three.
	reads, expired, written map[lb.Owner]moment
	// due is when the reads of an owner expire by time.
	due    map[lb.Owner]time.Time
	listed moment
	events moment   // of nodes; earlier reads must not be the basis of a write
	list   *listing // in progress
	count  uint64

	certificateList struct {
		sync.Mutex
		at    moment // of the request
		ended time.Time
		all   []lb.Certificate
		err   error
	}
}

// moment is a point in the order of reads and writes.
type moment struct {
	order uint64
	time  time.Time
}

type reading struct {
	lb.State
	at moment
}

type listing struct {
	began    moment
	ended    chan struct{}
	err      error
	periodic bool
}

func newStates(backend lb.Backend, cluster string) *states {
	return &states{
		backend: backend, cluster: cluster, known: make(map[int64]reading),
		reads: make(map[lb.Owner]moment), expired: make(map[lb.Owner]moment),
		written: make(map[lb.Owner]moment), due: make(map[lb.Owner]time.Time),
	}
}

func (s *states) now() moment {
	s.count++
	return moment{order: s.count, time: time.Now()}
}

// expire marks all reads of an owner as outdated.
func (s *states) expire(owner lb.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired[owner] = s.now()
}

// event requires a read before the next write of any owner, after a change of nodes.
func (s *states) event() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = s.now()
}

// isExpired reports whether an owner was not read since expire or the time of expireAfter.
func (s *states) isExpired(owner lb.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, due := s.last(owner), s.due[owner]
	return last.order <= s.expired[owner].order ||
		!due.IsZero() && last.time.Before(due) && !time.Now().Before(due)
}

// expireAfter expires earlier reads of an owner after a delay.
func (s *states) expireAfter(owner lb.Owner, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := time.Now().Add(after)
	if known := s.due[owner]; known.Before(time.Now()) || due.Before(known) {
		s.due[owner] = due
	}
}

// fresh reports whether a write may be based on the last read of an owner.
func (s *states) fresh(owner lb.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last(owner)
	return last.order > max(s.expired[owner].order, s.written[owner].order, s.events.order) &&
		time.Since(last.time) < freshness
}

func (s *states) last(owner lb.Owner) moment {
	if read := s.reads[owner]; read.order > s.listed.order {
		return read
	}
	return s.listed
}

func (s *states) all() []lb.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]lb.State, 0, len(s.known))
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		all = append(all, s.known[id].State)
	}
	return all
}

func (s *states) carrying(owner lb.Owner) []lb.State {
	return slices.DeleteFunc(s.all(), func(have lb.State) bool { return !owner.Carries(have.Labels) })
}

// listedFor reports whether the last read of an owner was a list.
func (s *states) listedFor(owner lb.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed.order > 0 && s.last(owner) == s.listed
}

func (s *states) pages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)/50 + 1
}

// wrote records successful ops: it updates the cached targets, and other ops expire the owner.
func (s *states) wrote(owner lb.Owner, id int64, ops []lb.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, known := s.known[id]
	r.Targets = slices.Clone(r.Targets)
	for _, op := range ops {
		switch op := op.(type) {
		case lb.AddTarget:
			r.Targets = append(r.Targets, op.Target)
		case lb.RemoveTarget:
			r.Targets = slices.DeleteFunc(r.Targets, func(t lb.Target) bool { return t == op.Target })
		default:
			known = false
		}
	}
	if !known {
		s.expired[owner] = s.now()
		return
	}
	slices.SortFunc(r.Targets, lb.Target.Compare)
	s.known[id], s.written[owner] = r, s.now()
}

// touch requires a read before the next write of an owner.
func (s *states) touch(owner lb.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[owner] = s.now()
}

// many reports whether other load balancers also need a read because of the same event.
func (s *states) many(owner lb.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last(owner).order < s.events.order && len(s.known) > len(s.known)/50+1
}

func (s *states) forget(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}

// readAll lists all load balancers, or waits for a list that began after the owner expired, but a
// change of traffic not for a periodic list, which may wait for the budget.
func (s *states) readAll(ctx context.Context, owner lb.Owner, periodic bool) error {
	for {
		s.mu.Lock()
		l := s.list
		if l == nil || l.periodic && !periodic {
			break
		}
		enough := l.began.order > s.expired[owner].order
		s.mu.Unlock()
		select {
		case <-l.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
		if enough {
			return l.err
		}
	}
	l := &listing{began: s.now(), ended: make(chan struct{}), periodic: periodic}
	s.list = l
	s.mu.Unlock()
	found, err := s.backend.List(ctx, s.cluster, periodic)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.err = err; err == nil && l.began.order > s.listed.order {
		s.listed = l.began
		maps.DeleteFunc(s.known, func(_ int64, r reading) bool { return r.at.order < l.began.order })
		for _, have := range found {
			s.put(have, l.began)
		}
		old := func(_ lb.Owner, m moment) bool { return m.order < l.began.order }
		maps.DeleteFunc(s.reads, old)
		maps.DeleteFunc(s.expired, old)
		maps.DeleteFunc(s.written, old)
		maps.DeleteFunc(s.due, func(_ lb.Owner, due time.Time) bool { return due.Before(l.began.time) })
	}
	if s.list == l {
		s.list = nil
	}
	close(l.ended)
	if err != nil {
		return fmt.Errorf("listing load balancers: %w", err)
	}
	return nil
}

// certificates returns the project's certificates by a list that is newer than the last read of the
// owner: Services of one list of load balancers, or of one event of nodes, share it.
func (s *states) certificates(ctx context.Context, owner lb.Owner) ([]lb.Certificate, error) {
	c := &s.certificateList
	c.Lock()
	defer c.Unlock()
	s.mu.Lock()
	began, last := s.now(), s.last(owner)
	s.mu.Unlock()
	again := c.at.order == 0 || c.at.order < last.order
	if c.err != nil { // an error is shared too: a list may take half a minute to fail
		again = time.Since(c.ended) >= minRetryDelay
	}
	if again {
		c.at = began
		c.all, c.err = s.backend.Certificates(ctx)
		c.ended = time.Now()
	}
	return c.all, c.err
}

// put requires s.mu.
func (s *states) put(have lb.State, at moment) {
	if s.known[have.ID].at.order <= at.order {
		s.known[have.ID] = reading{State: have, at: at}
	}
}

// read reads an owner's load balancers: all for a group, else those with the Service's label.
func (s *states) read(ctx context.Context, owner lb.Owner) error {
	if owner.Group != "" {
		return s.readAll(ctx, owner, false)
	}
	s.mu.Lock()
	began := s.now()
	s.mu.Unlock()
	found, err := s.backend.Carrying(ctx, owner)
	if err != nil {
		return fmt.Errorf("looking for the load balancer: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(id int64, r reading) bool {
		gone := r.at.order < began.order && owner.Carries(r.Labels) &&
			!slices.ContainsFunc(found, func(have lb.State) bool { return have.ID == id })
		if gone && r.Shared() {
			s.expired[lb.GroupOwner(owner.Cluster, r.Group())] = s.now() // it was changed
		}
		return gone
	})
	for _, have := range found {
		s.put(have, began)
	}
	if began.order > s.reads[owner].order {
		s.reads[owner] = began
	}
	return nil
}
