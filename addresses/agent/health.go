package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// Times of health checks: three misses in a row are about a second.
const (
	checkEvery, checkWithin = 300 * time.Millisecond, 300 * time.Millisecond
	missesToSilent          = 3
	answersToHeard          = 2
	// restartWithin is how long a program may take that is replaced. An agent that is back by then
	// has lost nothing: what it holds is known to its neighbors for longer. Nor has a kube-proxy
	// whose machine refuses connections to its port: its rules stay in the kernel without it.
	restartWithin = 10 * time.Second
	// checkPace is how far apart all checks of one node are at least, on average: a holder of many
	// addresses whose traffic is local has a port for each.
	checkPace = 10 * time.Millisecond
)

// hearing is what is known of one port after some checks.
type hearing struct {
	silent          bool
	misses, answers int       // in a row
	since           time.Time // of the misses in a row: the first, also if it was a refusal
}

// after is what is known after one more check.
func (h hearing) after(now time.Time, answer error, patient bool) hearing {
	if answer == nil {
		h.misses, h.answers, h.since = 0, h.answers+1, time.Time{}
		h.silent = h.silent && h.answers < answersToHeard
		return h
	}
	if h.answers = 0; h.since.IsZero() {
		h.since = now
	}
	if h.misses++; errors.Is(answer, ErrRefused) {
		h.misses = 0 // the machine is there
	}
	h.silent = h.silent || h.misses >= missesToSilent && !patient || now.Sub(h.since) >= restartWithin
	return h
}

// watcher checks ports of other nodes, each by a goroutine of its own.
type watcher struct {
	check   Check
	changed func()

	mu      sync.Mutex
	watches map[addresses.Endpoint]*portWatch
	workers sync.WaitGroup
}

type portWatch struct {
	at      []netip.AddrPort // one that answers is enough
	patient bool
	hearing
	stop context.CancelFunc
}

func newWatcher(check Check, changed func()) *watcher {
	return &watcher{check: check, changed: changed, watches: map[addresses.Endpoint]*portWatch{}}
}

// set is given all that is to be watched, with the addresses to ask at.
func (w *watcher) set(ctx context.Context, want map[addresses.Endpoint][]netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e, is := range w.watches {
		if at, wanted := want[e]; !wanted || !slices.Equal(at, is.at) {
			is.stop()
			delete(w.watches, e)
		}
	}
	for e, at := range want {
		if _, watched := w.watches[e]; watched {
			continue
		}
		alone, stop := context.WithCancel(ctx)
		p := &portWatch{at: at, patient: e.Port == addresses.AgentPort, stop: stop}
		w.watches[e] = p
		w.workers.Go(func() { w.watch(alone, p) })
	}
}

// watch checks one port until the context ends.
func (w *watcher) watch(ctx context.Context, p *portWatch) {
	// Watches that begin together do not go on together.
	for pause := rand.N(checkEvery); ; pause = w.pause() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		answer := checked(ctx, w.check, p.at)
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		before := p.silent
		p.hearing = p.after(time.Now(), answer, p.patient)
		after := p.silent
		w.mu.Unlock()
		if before != after {
			w.changed()
		}
	}
}

func (w *watcher) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(checkEvery, time.Duration(len(w.watches))*checkPace)
}

// checked asks at each address until one answers. Only where all refuse is that what counts.
func checked(ctx context.Context, check Check, at []netip.AddrPort) (worst error) {
	for _, one := range at {
		ctx, cancel := context.WithTimeout(ctx, checkWithin)
		err := check(ctx, one)
		cancel()
		if err == nil {
			return nil
		}
		if worst == nil || !errors.Is(err, ErrRefused) {
			worst = err
		}
	}
	return worst
}

// silent are the ports that don't answer.
func (w *watcher) silent() []addresses.Endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []addresses.Endpoint
	for e, p := range w.watches {
		if p.silent {
			found = append(found, e)
		}
	}
	return found
}

// stop ends all watches.
func (w *watcher) stop() {
	w.set(context.Background(), nil)
	w.workers.Wait()
}
