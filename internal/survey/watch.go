package survey

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// Watcher refreshes a Snapshot when it is called: from the API server every few seconds at most,
// from the cloud as often as its budget of requests allows. Without calls it sends no requests.
type Watcher struct {
	from Sources
	turn *semaphore.Weighted // guards the fields below, with waiting that ends with ctx

	live Live
	// next is when the next refresh is due, cloud the time of the last refresh from the cloud.
	next, cloud time.Time
}

// Live is the newest Snapshot.
type Live struct {
	Snapshot *Snapshot
	// Trouble is the reason why the last refresh failed; empty if the Snapshot is current.
	Trouble string
}

const (
	// ShortestPause and longestPause limit the time between two refreshes. Refreshing takes at
	// most a twentieth of the time, so that the load on the API server does not grow with the
	// cluster.
	ShortestPause, longestPause = 2 * time.Second, time.Minute
	idleShare                   = 20
	lookWithin                  = time.Minute

	// cloudPause is the least time between two refreshes from the cloud, perRequest the least
	// time per request: the project has 3,600 requests per hour for all clients, and an open
	// page uses a quarter of them at most.
	cloudPause, perRequest = 15 * time.Second, 4 * time.Second
	// perPage is the cloud's maximum page size.
	perPage = 50
)

// Watch collects everything once and returns a Watcher.
func Watch(ctx context.Context, from Sources) (*Watcher, error) {
	first, err := Collect(ctx, from, Want{Parts: Everything})
	if err != nil {
		return nil, err
	}
	return &Watcher{
		from: from, turn: semaphore.NewWeighted(1), live: Live{Snapshot: first},
		next: first.Taken.Add(ShortestPause), cloud: first.Taken,
	}, nil
}

// Look returns the newest Snapshot, and refreshes it first if that is due. It returns an error
// only if ctx is done; other errors are in Trouble.
func (w *Watcher) Look(ctx context.Context) (Live, error) {
	if err := w.turn.Acquire(ctx, 1); err != nil {
		return Live{}, context.Cause(ctx)
	}
	defer w.turn.Release(1)
	began, earlier := time.Now(), w.live.Snapshot
	if began.Before(w.next) {
		return w.live, nil
	}
	parts, s := Everything, w.from.empty()
	if began.Before(w.cloud.Add(max(cloudPause, time.Duration(earlier.cost())*perRequest))) {
		parts &^= Cloud
		s.keepCloud(earlier)
	}
	late := fmt.Errorf("no response within %s", lookWithin)
	within, cancel := context.WithTimeoutCause(ctx, lookWithin, late)
	defer cancel()
	err := s.look(within, w.from, Want{Parts: parts})
	if ctx.Err() != nil {
		return Live{}, context.Cause(ctx)
	}
	pause := ShortestPause
	if err != nil {
		w.live.Trouble = "not up to date since " + clock(earlier.Taken) + ": " + err.Error()
	} else {
		w.live = Live{Snapshot: s}
		pause = min(max(pause, idleShare*time.Since(began)), longestPause)
		if parts&Cloud != 0 {
			w.cloud = began
		}
	}
	w.next = time.Now().Add(pause)
	return w.live, nil
}

// keepCloud copies the cloud's parts from an earlier Snapshot.
func (s *Snapshot) keepCloud(earlier *Snapshot) {
	s.Network, s.Servers = earlier.Network, earlier.Servers
	s.LoadBalancers, s.Certificates = earlier.LoadBalancers, earlier.Certificates
	s.Parts = earlier.Parts & Cloud
	s.Gaps = slices.DeleteFunc(slices.Clone(earlier.Gaps), func(g Gap) bool {
		return g.Part&Cloud == 0
	})
}

// cost returns the number of requests of a refresh from the cloud, at most, by the objects of
// the last one: a longer list's first page returns the total, and is requested again as the last.
func (s *Snapshot) cost() int {
	const lists = 4 // servers, load balancers, certificates, network
	objects := len(s.Servers) + len(s.LoadBalancers) + len(s.Certificates)
	return lists + objects/perPage + min(objects/perPage, lists)
}
