package dedicated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/robot"
)

// Robot is what is asked; *robot.Client is one.
type Robot interface {
	Servers(ctx context.Context) ([]robot.Server, error)
	Server(ctx context.Context, number int64) (robot.Server, error)
	Members(ctx context.Context, vSwitch int64) ([]robot.Member, error)
}

const (
	// maxAge is how old the list may be for those who don't ask for a newer one:
	// 12 lists an hour.
	maxAge = 5 * time.Minute
	// patience is how long a list that is being read is waited for, by all together
	// from when it began: who comes later waits for what is left of it. So one try
	// that hangs costs those who ask one after the other, as the node controllers do
	// for each Node, this time once. It is also how long one caller waits at most, and
	// for an answer about one server.
	patience = 10 * time.Second
	// longestRead bounds reading a list, its wait for the quota included.
	longestRead = 2 * time.Minute
	// pause is how long nothing is tried again that failed, and how long the
	// answer about one server is good.
	pause = time.Minute
)

// Servers is the account's list, kept for everybody. It implements
// cloud.Inventory.
type Servers struct {
	robot Robot
	tell  func(error)

	mu     sync.Mutex // guards what follows, and the order of what is told
	list   []cloud.Machine
	asked  time.Time // when the list was asked for; zero: there is none yet
	flight *flight   // the list that is being read; nil: none is
	failed time.Time // when the last one failed; zero: it did not
	cause  error
	told   bool // of a failure
	alone  map[int64]answer
}

// flight is a list on its way.
type flight struct {
	began  time.Time
	landed chan struct{} // closed when it has
}

// answer is Robot's about one server.
type answer struct {
	server cloud.Machine
	err    error
	asked  time.Time
}

var _ cloud.Inventory = (*Servers)(nil)

// New asks nothing yet. tell is told once when the list can't be read for another
// reason than that Robot is away, of which its client tells, and once with nil when it
// can be again. It must not call the Servers.
func New(r Robot, tell func(error)) *Servers {
	return &Servers{robot: r, tell: tell, alone: map[int64]answer{}}
}

// List implements cloud.Inventory.
func (s *Servers) List(ctx context.Context, since time.Time) ([]cloud.Machine, error) {
	now := time.Now()
	if since.After(now) {
		since = now
	}
	for {
		list, awaited, err := s.now(ctx, since)
		if err != nil || awaited == nil {
			return list, err
		}
		if err := awaited.wait(ctx, now.Add(patience)); err != nil {
			return nil, fmt.Errorf("listing dedicated servers: %w", err)
		}
	}
}

// wait returns when the list has landed, or an error when patience ends or the
// caller's time.
func (f *flight) wait(ctx context.Context, limit time.Time) error {
	if own := f.began.Add(patience); own.Before(limit) {
		limit = own
	}
	timeout := time.NewTimer(time.Until(limit))
	defer timeout.Stop()
	select {
	case <-f.landed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		return errors.New("Robot has not answered yet")
	}
}

// now returns the list that there is, if it will do, or else what to wait for.
func (s *Servers) now(ctx context.Context, since time.Time) (list []cloud.Machine, awaited *flight, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known := time.Now(), !s.asked.IsZero()
	fresh := known && !s.asked.Before(since)
	if since.IsZero() {
		fresh = known && now.Sub(s.asked) < maxAge
	}
	if fresh {
		return s.list, nil, nil
	}
	failing := !s.failed.IsZero() && now.Sub(s.failed) < pause
	if s.flight == nil && !failing {
		s.flight = &flight{began: now, landed: make(chan struct{})}
		// Others wait for the same list: one caller's end isn't theirs.
		go s.read(context.WithoutCancel(ctx))
	}
	switch {
	case known && since.IsZero():
		return s.list, nil, nil
	case s.flight != nil:
		return nil, s.flight, nil
	default:
		return nil, nil, s.cause
	}
}

// read reads the list, which lands when the lock is free again.
func (s *Servers) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	asked := time.Now()
	found, err := s.robot.Servers(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.flight.landed)
	s.flight = nil
	if err != nil {
		s.failed, s.cause = time.Now(), err
		if !s.told && !errors.As(err, new(*robot.Unavailable)) {
			s.told = true
			s.tell(err)
		}
		return
	}
	s.list, s.asked, s.failed, s.cause = convert(found), asked, time.Time{}, nil
	if s.told {
		s.told = false
		s.tell(nil)
	}
}

// Get implements cloud.Inventory. An answer is good for a minute.
func (s *Servers) Get(ctx context.Context, number int64) (cloud.Machine, error) {
	now := time.Now()
	s.mu.Lock()
	maps.DeleteFunc(s.alone, func(_ int64, a answer) bool { return now.Sub(a.asked) >= pause })
	known, ok := s.alone[number]
	s.mu.Unlock()
	if ok {
		return known.server, known.err
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := s.robot.Server(limited, number)
	switch {
	case robot.IsCode(err, robot.CodeServerNotFound):
		err = fmt.Errorf("dedicated server %d: %w", number, cloud.ErrNoServer)
	case ctx.Err() != nil:
		return cloud.Machine{}, err // the caller's wish
	}
	a := answer{server: server(found), err: err, asked: now}
	s.mu.Lock()
	s.alone[number] = a
	s.mu.Unlock()
	return a.server, a.err
}

func convert(found []robot.Server) []cloud.Machine {
	list := make([]cloud.Machine, 0, len(found))
	for _, s := range found {
		list = append(list, server(s))
	}
	slices.SortFunc(list, func(a, b cloud.Machine) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
