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
	// whose machine refuses connections to its port: its rules stay in the kernel without it. And
	// one that says it has no endpoint of a Service has as long to write the rules of new ones.
	restartWithin = 10 * time.Second
	// checkPace is how far apart the checks of Services' own ports are at least, on average: a holder
	// of many addresses whose traffic is local has a port for each. What tells whether the node is
	// there at all, its kube-proxy and its agent, is asked as often as ever.
	checkPace = 10 * time.Millisecond
)

// hearing is what is known of one port after some checks.
type hearing struct {
	silent          bool
	misses, answers int       // in a row
	since           time.Time // of the misses in a row: the first, also if it was a refusal
}

// after is what is known after one more check.
func (h hearing) after(now time.Time, answer error, port int) hearing {
	if answer == nil {
		h.misses, h.answers, h.since = 0, h.answers+1, time.Time{}
		h.silent = h.silent && h.answers < answersToHeard
		return h
	}
	if h.answers = 0; h.since.IsZero() {
		h.since = now
	}
	// That a kube-proxy which answers has no endpoint of a Service is known from EndpointSlices at
	// least as soon; where they say that there is one, kube-proxy has not come to it yet. The next
	// node's is no faster: each one that was given up at once would pass the address on.
	late := ofService(port) && errors.Is(answer, ErrUnready)
	if h.misses++; late || errors.Is(answer, ErrRefused) {
		h.misses = 0 // the machine is there
	}
	// kube-proxy opens a Service's port in the Service's families alone, and where its
	// nodePortAddresses has it. Whether kube-proxy is there its own port says.
	if ofService(port) && errors.Is(answer, ErrRefused) {
		h.since = time.Time{}
	}
	h.silent = h.silent || h.misses >= missesToSilent && port != addresses.AgentPort ||
		!h.since.IsZero() && now.Sub(h.since) >= restartWithin
	return h
}

// watcher checks ports of other nodes, each by a goroutine of its own.
type watcher struct {
	check   Check
	changed func()

	mu      sync.Mutex
	watches map[addresses.Endpoint]*portWatch
	// services counts the watches of Services' own ports.
	services int
	workers  sync.WaitGroup
}

type portWatch struct {
	at   []netip.AddrPort // one that answers is enough
	port int
	hearing
	// unready: nothing was answered yet, or that it does not serve.
	unready bool
	stop    context.CancelFunc
}

// local reports whether the port is this machine's.
func (p *portWatch) local() bool { return p.at[0].Addr().IsLoopback() }

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
	w.services = 0
	for e, at := range want {
		if ofService(e.Port) {
			w.services++
		}
		if _, watched := w.watches[e]; watched {
			continue
		}
		alone, stop := context.WithCancel(ctx)
		p := &portWatch{at: at, port: e.Port, unready: true, stop: stop}
		w.watches[e] = p
		w.workers.Go(func() { w.watch(alone, p) })
	}
}

// watch checks one port until the context ends.
func (w *watcher) watch(ctx context.Context, p *portWatch) {
	// Watches that begin together do not go on together. A check that waits in vain makes the next
	// one no later: what counts is how soon a node is known to be silent. What this machine itself
	// says is waited for.
	first := time.Now().Add(rand.N(checkEvery))
	if p.local() {
		first = time.Now()
	}
	for next := first; ; next = later(next.Add(w.pause(p.port)), time.Now()) {
		if wait := time.Until(next); wait > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
		answer := checked(ctx, w.check, p.at)
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		before, waited := p.silent, p.unready
		p.hearing = p.after(time.Now(), answer, p.port)
		p.unready = errors.Is(answer, ErrUnready)
		changed := before != p.silent || waited != p.unready && p.local()
		w.mu.Unlock()
		if changed {
			w.changed()
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// pause is the time from one check of a port to the next.
func (w *watcher) pause(port int) time.Duration {
	if !ofService(port) {
		return checkEvery
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(checkEvery, time.Duration(w.services)*checkPace)
}

// ofService reports whether a port tells of one Service only: its health check node port.
func ofService(port int) bool { return port != addresses.ProxyPort && port != addresses.AgentPort }

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

// unready reports whether an address waits for a port: it was not asked yet, or says for less than
// [restartWithin] that it does not serve.
func (w *watcher) unready(e addresses.Endpoint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, watched := w.watches[e]
	return !watched || p.unready && !p.silent
}

// stop ends all watches.
func (w *watcher) stop() {
	w.set(context.Background(), nil)
	w.workers.Wait()
}
