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

// With these times, three misses in a row take about a second.
const (
	checkEvery, checkWithin = 300 * time.Millisecond, 300 * time.Millisecond
	missesToSilent          = 3
	successesToRecover      = 2
	// restartWithin is the time that a program may take to restart. An agent that is back by then
	// has lost nothing, as neighbors cache its addresses for longer. While a machine refuses
	// connections to kube-proxy's port, its rules stay in the kernel. A kube-proxy that reports no
	// endpoint of a Service has as long to write its rules.
	restartWithin = 10 * time.Second
	// checkPace is the minimum average distance between checks of Services' own ports, because a
	// holder of many addresses with local traffic has a port for each. It does not slow down the
	// checks of kube-proxy and agent, which show whether the node is up.
	checkPace = 10 * time.Millisecond
)

// probeState is the state of a port after its checks so far.
type probeState struct {
	silent            bool
	misses, successes int       // in a row
	since             time.Time // of the first failure in a row, which may be a refusal
}

func (h probeState) after(now time.Time, result error, port int) probeState {
	if result == nil {
		h.misses, h.successes, h.since = 0, h.successes+1, time.Time{}
		h.silent = h.silent && h.successes < successesToRecover
		return h
	}
	if h.successes = 0; h.since.IsZero() {
		h.since = now
	}
	// kube-proxy responds that it has no endpoint. The manager observes that in EndpointSlices as
	// soon; if they contain an endpoint, kube-proxy has yet to write its rules. The next node is no
	// faster, so releasing the address at once would only pass it on.
	late := ofService(port) && errors.Is(result, ErrUnready)
	if h.misses++; late || errors.Is(result, ErrRefused) {
		h.misses = 0 // the machine responds
	}
	// A refusal here is no failure: kube-proxy opens a Service's port only in the Service's
	// families and on nodePortAddresses. ProxyPort shows whether it runs.
	if ofService(port) && errors.Is(result, ErrRefused) {
		h.since = time.Time{}
	}
	h.silent = h.silent || h.misses >= missesToSilent && port != addresses.AgentPort ||
		!h.since.IsZero() && now.Sub(h.since) >= restartWithin
	return h
}

// watcher checks ports, each in its own goroutine.
type watcher struct {
	check   Check
	changed func()

	mu      sync.Mutex
	watches map[addresses.Endpoint]*portWatch
	// services counts the watched Services' ports.
	services int
	workers  sync.WaitGroup
}

type portWatch struct {
	at   []netip.AddrPort // the port is healthy if any of them is
	port int
	probeState
	// unready is set before the first result, and while the server responds ErrUnready.
	unready bool
	stop    context.CancelFunc
}

func (p *portWatch) local() bool { return p.at[0].Addr().IsLoopback() }

func newWatcher(check Check, changed func()) *watcher {
	return &watcher{check: check, changed: changed, watches: map[addresses.Endpoint]*portWatch{}}
}

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

func (w *watcher) watch(ctx context.Context, p *portWatch) {
	// A random start spreads watches that begin together. A timeout does not delay the next check,
	// so that failures are detected soon. This machine's own ports are checked at once: addresses
	// wait for them.
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
		result := checked(ctx, w.check, p.at)
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		before, waited := p.silent, p.unready
		p.probeState = p.after(time.Now(), result, p.port)
		p.unready = errors.Is(result, ErrUnready)
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

func (w *watcher) pause(port int) time.Duration {
	if !ofService(port) {
		return checkEvery
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(checkEvery, time.Duration(w.services)*checkPace)
}

// ofService reports whether a port is the health check node port of a Service.
func ofService(port int) bool { return port != addresses.ProxyPort && port != addresses.AgentPort }

// checked returns nil if any address is healthy, and ErrRefused only if all refuse.
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

// unready reports whether an address has to wait for a port: until its first check, and up to
// [restartWithin] while it does not serve.
func (w *watcher) unready(e addresses.Endpoint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, watched := w.watches[e]
	return !watched || p.unready && !p.silent
}

func (w *watcher) stop() {
	w.set(context.Background(), nil)
	w.workers.Wait()
}
