package robot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

const (
	// maxAge is the maximum age of the list if no newer one is required: 12 lists an hour.
	maxAge = 5 * time.Minute
	// patience bounds the wait for a read of the list, from its start: a read that hangs delays
	// consecutive callers, as the node controllers are for each Node, only once. It also bounds
	// the wait of one caller, and a request for one server.
	patience = 10 * time.Second
	// longestRead bounds reading a list, including the wait for the quota.
	longestRead = 2 * time.Minute
	// pause is the time before a failed read is retried, and how long a response about one
	// server is cached.
	pause = time.Minute
)

// Servers caches the account's list of servers. It implements cloud.Inventory.
//
// Robot allows 200 lists an hour to all programs of the account together, so the list is shared,
// and read again when it is five minutes old or a caller needs a newer one. Callers wait for a
// short time, and only once for a request that hangs: it continues after they gave up, and a failed
// read is not retried for a minute. The last list is kept for as long as Robot is unavailable.
//
// It never takes a failure for an empty list, or any response but Robot's SERVER_NOT_FOUND for the
// deletion of a server.
type Servers struct {
	client   *Client
	onResult func(error)

	mu        sync.Mutex // guards the fields below, and the order of calls of onResult
	list      []cloud.Machine
	requested time.Time // when list was requested; zero: there is no list yet
	flight    *flight   // current read of the list, or nil
	failed    time.Time // when the last read failed, because of cause
	cause     error     // nil: it succeeded
	alone     map[int64]singleReply
}

// flight is a read of the list.
type flight struct {
	began  time.Time
	landed chan struct{} // closed when it ends
}

type singleReply struct {
	server    cloud.Machine
	err       error
	requested time.Time
}

var _ cloud.Inventory = (*Servers)(nil)

// NewServers returns Servers without a list. onResult is called once when the list can't be read,
// and once with nil when it can be read again. It must not call the Servers.
func NewServers(c *Client, onResult func(error)) *Servers {
	return &Servers{client: c, onResult: onResult, alone: map[int64]singleReply{}}
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

// wait waits for the end of the read until patience, limit or the context ends.
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
		return errors.New("the Robot web service has not responded yet")
	}
}

// now returns the current list if it is new enough, or the read to wait for.
func (s *Servers) now(
	ctx context.Context, since time.Time,
) (list []cloud.Machine, awaited *flight, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known := time.Now(), !s.requested.IsZero()
	fresh := known && !s.requested.Before(since)
	if since.IsZero() {
		fresh = known && now.Sub(s.requested) < maxAge
	}
	if fresh {
		return s.list, nil, nil
	}
	failing := s.cause != nil && now.Sub(s.failed) < pause
	if s.flight == nil && !failing {
		s.flight = &flight{began: now, landed: make(chan struct{})}
		// Other callers wait for the same list: this caller's end must not cancel it.
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

func (s *Servers) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	requested := time.Now()
	found, err := s.client.Servers(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.flight.landed)
	s.flight = nil
	if err != nil {
		if s.cause == nil {
			s.onResult(err)
		}
		s.failed, s.cause = time.Now(), err
		return
	}
	if s.cause != nil {
		s.onResult(nil)
	}
	s.list, s.requested, s.cause = found, requested, nil
}

// Get implements cloud.Inventory. It caches responses and errors for a minute.
func (s *Servers) Get(ctx context.Context, number int64) (cloud.Machine, error) {
	now := time.Now()
	s.mu.Lock()
	maps.DeleteFunc(s.alone, func(_ int64, a singleReply) bool {
		return now.Sub(a.requested) >= pause
	})
	known, ok := s.alone[number]
	s.mu.Unlock()
	if ok {
		return known.server, known.err
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := s.client.Server(limited, number)
	switch {
	case IsCode(err, CodeServerNotFound):
		err = fmt.Errorf("dedicated server %d: %w", number, cloud.ErrNoServer)
	case ctx.Err() != nil:
		return cloud.Machine{}, err // ended by the caller
	}
	a := singleReply{server: found, err: err, requested: now}
	s.mu.Lock()
	s.alone[number] = a
	s.mu.Unlock()
	return a.server, a.err
}
