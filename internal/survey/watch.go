package survey

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Watcher looks again when it is called: at the API server every few seconds at most, at the
// cloud as often as its budget of requests allows. Without calls it sends no request.
type Watcher struct {
	from Sources
	turn chan struct{} // has an entry while a call uses what is below

	live Live
	// next is when the next look is due, cloud when the cloud was looked at last.
	next, cloud time.Time
	inspected   map[Want]*Snapshot
}

// Live is the newest look and what is wrong with it.
type Live struct {
	Snapshot *Snapshot
	// Trouble is why there is no newer look; empty: it is the newest.
	Trouble string
}

const (
	// ShortestPause and longestPause are the least and the most time between two looks; in
	// between, looking takes a twentieth of the time, so that a large cluster's API server has
	// no more to do for it than a small one's.
	ShortestPause, longestPause = 2 * time.Second, time.Minute
	idleShare                   = 20
	// lookWithin is how long the API server and the cloud may take for one look.
	lookWithin = time.Minute

	cloudParts = PartNetwork | PartServers | PartLoadBalancers
	// cloudPause is the least time between two looks at the cloud. A look may cost one request
	// for each perRequest: the project has 3,600 an hour for all clients, of which a page that
	// is kept open takes a quarter at most.
	cloudPause, perRequest = 15 * time.Second, 4 * time.Second
	// perPage is how many objects the cloud's lists have on a page at most.
	perPage = 50
	// inspectAgain is how old an inspection may be, of which mostInspected are kept.
	inspectAgain  = 10 * time.Second
	mostInspected = 32
)

// Watch looks once at everything.
func Watch(ctx context.Context, from Sources) (*Watcher, error) {
	first, err := Collect(ctx, from, Want{Parts: Everything})
	if err != nil {
		return nil, err
	}
	return &Watcher{
		from: from, turn: make(chan struct{}, 1), live: Live{Snapshot: first},
		next: first.Taken.Add(ShortestPause), cloud: first.Taken, inspected: map[Want]*Snapshot{},
	}, nil
}

// enter waits for the call's turn. The error is that ctx has ended.
func (w *Watcher) enter(ctx context.Context) (leave func(), err error) {
	select {
	case w.turn <- struct{}{}:
		return func() { <-w.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Look returns the newest look, and looks first if that is due. The error is that ctx has
// ended; other errors are Trouble.
func (w *Watcher) Look(ctx context.Context) (Live, error) {
	leave, err := w.enter(ctx)
	if err != nil {
		return Live{}, err
	}
	defer leave()
	began, earlier := time.Now(), w.live.Snapshot
	if began.Before(w.next) {
		return w.live, nil
	}
	parts, s := Everything, w.from.empty()
	if began.Before(w.cloud.Add(max(cloudPause, time.Duration(earlier.cost())*perRequest))) {
		parts &^= cloudParts
		s.keepCloud(earlier)
	}
	late := fmt.Errorf("no answer within %s", lookWithin)
	within, cancel := context.WithTimeoutCause(ctx, lookWithin, late)
	defer cancel()
	err = s.look(within, w.from, Want{Parts: parts})
	if ctx.Err() != nil {
		return Live{}, context.Cause(ctx)
	}
	pause := ShortestPause
	if err != nil {
		w.live.Trouble = "not up to date since " + clock(earlier.Taken) + ": " + err.Error()
	} else {
		s.Left = left(earlier, s)
		w.live = Live{Snapshot: s}
		pause = min(max(pause, idleShare*time.Since(began)), longestPause)
		if parts&cloudParts != 0 {
			w.cloud = began
		}
	}
	w.next = time.Now().Add(pause)
	return w.live, nil
}

// keepCloud takes what the cloud returned from an earlier look.
func (s *Snapshot) keepCloud(earlier *Snapshot) {
	s.Network, s.Servers = earlier.Network, earlier.Servers
	s.LoadBalancers, s.Certificates = earlier.LoadBalancers, earlier.Certificates
	s.Parts = earlier.Parts & cloudParts
	s.Gaps = slices.DeleteFunc(slices.Clone(earlier.Gaps), func(g Gap) bool { return g.Part&cloudParts == 0 })
}

// left are the Nodes that one of the looks before had and this one doesn't.
func left(earlier, s *Snapshot) map[types.UID]time.Time {
	out := map[types.UID]time.Time{}
	for uid, at := range earlier.Left {
		if s.Taken.Sub(at) <= GracePeriod {
			out[uid] = at
		}
	}
	if !earlier.Saw(PartNodes) || !s.Saw(PartNodes) {
		return out
	}
	for _, n := range earlier.Nodes {
		out[n.UID] = s.Taken
	}
	for _, n := range s.Nodes {
		delete(out, n.UID)
	}
	return out
}

// cost is how many requests a look at the cloud takes that finds what this one found.
func (s *Snapshot) cost() int {
	// The first page of a longer list says how many there are, and is read again as the last one.
	pages := func(n int) int { return n/perPage + 1 + min(n/perPage, 1) }
	n := pages(len(s.Servers)) + pages(len(s.LoadBalancers))
	if s.Config.Network != "" {
		n++
	}
	if len(s.LoadBalancers) > 0 {
		n += pages(len(s.Certificates))
	}
	return n
}

// Inspect is a look with the Actions of one object, which is some seconds old at most.
func (w *Watcher) Inspect(ctx context.Context, want Want) (*Snapshot, error) {
	leave, err := w.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	want.Parts = PartActions
	if known := w.inspected[want]; known != nil && time.Since(known.Taken) < inspectAgain {
		return known, nil
	}
	s := *w.live.Snapshot
	s.Taken, s.Gaps = time.Now(), slices.Clone(s.Gaps)
	if err := s.look(ctx, w.from, want); err != nil {
		return nil, err
	}
	if len(w.inspected) >= mostInspected {
		clear(w.inspected)
	}
	w.inspected[want] = &s
	return &s, nil
}
