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

// With these times, a node that fails is unresponsive after 0.75 to 0.9 s.
const (
	checkEvery, checkWithin = 300 * time.Millisecond, 300 * time.Millisecond
	missesToSilent          = 3
	successesToRecover      = 2
	// missesOfBoth are enough if kube-proxy and the agent of a node both miss: that is one check more,
	// of two programs. The agent is checked half-way between checks of kube-proxy, so that only a node
	// that is unresponsive for 2.5 times checkWithin lets all of them time out.
	missesOfBoth = 2
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
	at []netip.AddrPort // the port is healthy if any of them is
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
	start := time.Now().Add(rand.N(checkEvery)) // spreads the watchers of a node
	for e, at := range want {
		if ofService(e.Port) {
			w.services++
		}
		if _, watched := w.watches[e]; watched {
			continue
		}
		alone, stop := context.WithCancel(ctx)
		p := &portWatch{at: at, unready: true, stop: stop}
		w.watches[e] = p
		first := start
		switch {
		case p.local(): // addresses wait for this machine's own ports
			first = time.Now()
		case e.Port == addresses.AgentPort:
			first = start.Add(checkEvery / 2)
		case ofService(e.Port):
			first = time.Now().Add(rand.N(checkEvery))
		}
		w.workers.Go(func() { w.watch(alone, e, p, first) })
	}
}

func (w *watcher) watch(
	ctx context.Context, e addresses.Endpoint, p *portWatch, next time.Time,
) {
	for ; ; next = w.following(next, e.Port) {
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
		p.probeState = p.after(time.Now(), result, e.Port)
		p.unready = errors.Is(result, ErrUnready)
		changed := w.missed(e.Node) || before != p.silent || waited != p.unready && p.local()
		w.mu.Unlock()
		if changed {
			w.changed()
		}
	}
}

// missed marks a node's kube-proxy as unresponsive if missesOfBoth suffice for that, and reports
// whether it was not before. An agent that is unresponsive for longer may be the only fault.
func (w *watcher) missed(node string) bool {
	proxy := w.watches[addresses.Endpoint{Node: node, Port: addresses.ProxyPort}]
	agent := w.watches[addresses.Endpoint{Node: node, Port: addresses.AgentPort}]
	if proxy == nil || agent == nil || proxy.silent || agent.silent ||
		min(proxy.misses, agent.misses) < missesOfBoth {
		return false
	}
	proxy.silent = true
	return true
}

// following returns the time of the check of a port after one at last. A timeout does not delay it,
// so that failures are detected soon, and the times of kube-proxy and agent stay apart.
func (w *watcher) following(last time.Time, port int) time.Time {
	pause := w.pause(port)
	next := last.Add(pause)
	return next.Add(max(time.Since(next), 0).Round(pause))
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
