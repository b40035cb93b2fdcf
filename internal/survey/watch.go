package survey

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

// Watcher keeps a Snapshot up to date while somebody attends. Nodes, Services,
// EndpointSlices and Events are watched; where that is not allowed or does not work
// they are looked at again now and then, as everything else is.
type Watcher struct {
	from      Sources
	informers map[Part]cache.SharedIndexInformer
	poke      chan struct{} // something changed, or somebody came
	changes   chan struct{}

	mu        sync.Mutex
	live      Live
	attending int
	changed   bool
	broken    map[Part]breakage
	told      map[Want]told
}

// Live is the newest look and what is wrong with it.
type Live struct {
	Snapshot *Snapshot
	// Trouble is why there is no newer look; empty: it is the newest.
	Trouble string
	// Notes say of what is shown how it is come by, where that is not as it should be.
	Notes []string
}

const (
	// settle is how long changes may collect before they are shown: they come in groups.
	settle = 200 * time.Millisecond
	// least is how long what is shown stays, however much happens.
	least = time.Second
)

// lookWithin is how long the API server and the cloud may take for one look.
const lookWithin = time.Minute

// Watch looks once at everything. What it returns follows with Run.
func Watch(ctx context.Context, from Sources) (*Watcher, error) {
	first, err := Collect(ctx, from, Want{Parts: Everything})
	if err != nil {
		return nil, err
	}
	w := &Watcher{
		from: from, poke: make(chan struct{}, 1), changes: make(chan struct{}, 1),
		live: Live{Snapshot: first}, broken: map[Part]breakage{}, told: map[Want]told{},
	}
	return w, w.prepare(first.Parts)
}

// Latest is the newest look.
func (w *Watcher) Latest() Live {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live
}

// Changes has an entry when Latest is another than it was.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Attend tells that somebody looks, until leave is called. While nobody does, nothing
// is asked of the cloud.
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

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is an entry already
	}
}

// Run follows what happens until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	for _, i := range w.informers {
		watching.Go(func() { i.RunWithContext(ctx) })
	}
	p, attended := newPace(time.Now()), false
	for {
		look := w.Latest().Snapshot
		idle := time.Hour
		if attended {
			idle = p.next(time.Now(), w.unwatched(), look.cost())
		}
		if !w.wait(ctx, idle) {
			return
		}
		came, changed := w.news()
		if changed || came && !attended {
			p.changed()
		}
		if attended = came; !attended {
			continue
		}
		due := p.due(time.Now(), w.unwatched(), look.cost())
		if due == 0 && !changed {
			continue
		}
		if !w.look(ctx, due) {
			p.changed() // what was not seen is due again
		}
		if sleep.For(ctx, least) != nil {
			return
		}
	}
}

// wait returns after a while, or when there is news and others had the time to join
// it. It reports whether ctx goes on.
func (w *Watcher) wait(ctx context.Context, idle time.Duration) bool {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-w.poke:
		return sleep.For(ctx, settle) == nil
	}
}

// news reports whether somebody attends, and whether something was seen to change
// since it was asked last.
func (w *Watcher) news() (attended, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	attended = w.attending > 0
	if attended {
		changed, w.changed = w.changed, false
	}
	return attended, changed
}

// look shows what is watched as it is now, looks again at parts, and reports whether it
// could.
func (w *Watcher) look(ctx context.Context, parts Parts) bool {
	earlier := w.Latest().Snapshot
	wait, cancel := context.WithTimeoutCause(ctx, lookWithin, fmt.Errorf("no answer within %s", lookWithin))
	defer cancel()
	s, err := Refresh(wait, w.from, earlier, Want{Parts: parts | PartSetup})
	if ctx.Err() != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.live.Trouble = "not up to date since " + clock(earlier.Taken) + ": " + err.Error()
	} else {
		w.fill(s)
		s.Left = left(earlier, s)
		w.live = Live{Snapshot: s, Notes: w.notes()}
	}
	notify(w.changes)
	return err == nil
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
