package survey

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Watcher looks again and again while somebody attends: at the API server every few seconds, at
// the cloud as often as its budget of requests allows.
type Watcher struct {
	from    Sources
	poke    chan struct{} // somebody attends or has left
	changes chan struct{}

	mu        sync.Mutex
	live      Live
	attending int
	told      map[Want]told
}

// Live is the newest look and what is wrong with it.
type Live struct {
	Snapshot *Snapshot
	// Trouble is why there is no newer look; empty: it is the newest.
	Trouble string
}

const (
	// shortestPause and longestPause are the least and the most time between two looks; in
	// between, looking takes a twentieth of the time, so that a large cluster's API server has
	// no more to do for it than a small one's.
	shortestPause, longestPause = 2 * time.Second, time.Minute
	idleShare                   = 20
	// lookWithin is how long the API server and the cloud may take for one look.
	lookWithin = time.Minute

	cloudParts = PartNetwork | PartServers | PartLoadBalancers
	// cloudPause is the least time between two looks at the cloud. A look may cost one request
	// for each perRequest: the project has 3,600 an hour for everybody, of which a page that
	// stays open takes a quarter at most.
	cloudPause, perRequest = 15 * time.Second, 4 * time.Second
	// perPage is how many objects the cloud's lists have on a page at most.
	perPage = 50
)

// Watch looks once at everything. Run of what it returns looks again.
func Watch(ctx context.Context, from Sources) (*Watcher, error) {
	first, err := Collect(ctx, from, Want{Parts: Everything})
	if err != nil {
		return nil, err
	}
	return &Watcher{
		from: from, poke: make(chan struct{}, 1), changes: make(chan struct{}, 1),
		live: Live{Snapshot: first}, told: map[Want]told{},
	}, nil
}

// Latest is the newest look.
func (w *Watcher) Latest() Live {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live
}

// Changes has an entry when Latest is another than it was.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Attend has the Watcher look until leave is called.
func (w *Watcher) Attend() (leave func()) {
	w.attend(1)
	return sync.OnceFunc(func() { w.attend(-1) })
}

func (w *Watcher) attend(more int) {
	w.mu.Lock()
	w.attending += more
	w.mu.Unlock()
	notify(w.poke)
}

func (w *Watcher) attended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attending > 0
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is an entry already
	}
}

// Run looks until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	first := w.Latest().Snapshot
	next, cloud := first.Taken.Add(shortestPause), first.Taken
	for w.wait(ctx, next) {
		parts, began := Everything, time.Now()
		spacing := max(cloudPause, time.Duration(w.Latest().Snapshot.cost())*perRequest)
		if began.Before(cloud.Add(spacing)) {
			parts &^= cloudParts
		}
		pause := shortestPause
		if w.look(ctx, parts) {
			pause = min(max(pause, idleShare*time.Since(began)), longestPause)
			if parts&cloudParts != 0 {
				cloud = began
			}
		}
		next = time.Now().Add(pause)
	}
}

// wait returns at a time or later, when somebody attends. It reports whether ctx goes on.
func (w *Watcher) wait(ctx context.Context, until time.Time) bool {
	for {
		rest := time.Until(until)
		switch {
		case !w.attended():
			rest = longestPause
		case rest <= 0:
			return true
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		case <-w.poke:
			timer.Stop()
		}
	}
}

// look looks again at parts and reports whether it could.
func (w *Watcher) look(ctx context.Context, parts Parts) bool {
	earlier := w.Latest().Snapshot
	wait, cancel := context.WithTimeoutCause(ctx, lookWithin, fmt.Errorf("no answer within %s", lookWithin))
	defer cancel()
	s, err := Refresh(wait, w.from, earlier, Want{Parts: parts})
	if ctx.Err() != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.live.Trouble = "not up to date since " + clock(earlier.Taken) + ": " + err.Error()
	} else {
		s.Left = left(earlier, s)
		w.live = Live{Snapshot: s}
	}
	notify(w.changes)
	return err == nil
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

// told is what the cloud remembered of an object.
type told struct {
	at   time.Time
	from *Snapshot
}

const (
	// toldAgain is how soon the cloud is asked again about one object.
	toldAgain = 10 * time.Second
	toldMost  = 32 // objects
)

// Inspect is the newest look with the Actions of one object, which are some seconds old
// at most.
func (w *Watcher) Inspect(ctx context.Context, want Want) (*Snapshot, error) {
	want.Parts = PartActions
	w.mu.Lock()
	look, known := w.live.Snapshot, w.told[want]
	w.mu.Unlock()
	if known.from != nil && time.Since(known.at) < toldAgain {
		s := *look
		s.Actions, s.OlderActions = known.from.Actions, known.from.OlderActions
		s.Parts |= known.from.Parts & PartActions
		s.Gaps = slices.Clone(s.Gaps)
		for _, g := range known.from.Gaps {
			if g.Part == PartActions {
				s.Gaps = append(s.Gaps, g)
			}
		}
		return &s, nil
	}
	s, err := Refresh(ctx, w.from, look, want)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.told) >= toldMost {
		clear(w.told)
	}
	w.told[want] = told{time.Now(), s}
	return s, nil
}
