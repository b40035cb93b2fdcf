package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	// beatEvery is the interval of the loop's heartbeat, and stuckAfter its maximum age.
	beatEvery, stuckAfter = time.Second, 5 * time.Second
	// listenAgain is the interval of attempts to listen.
	listenAgain = 5 * time.Second
)

// Alive returns an error if the agent's loop is stuck.
func (a *Agent) Alive(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if since := now.Sub(a.beat); since > stuckAfter {
		return fmt.Errorf("this node's addresses have not been looked at for %s",
			since.Round(time.Second))
	}
	return nil
}

// Ready returns an error while Services use addresses of the first ledger that are in no pool of
// this run's configuration: a pool was removed while in use. An unready node stops the
// configuration's rollout, so the remaining nodes keep the addresses. A pool that is added later
// requires the next run, and is no reason to reject this configuration.
func (a *Agent) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, address := range a.orphans {
		if e, known := a.known.Ledger.Entry(address); known && len(e.Shares) > 0 {
			return fmt.Errorf("addresses.pools: no pool has %s, which the Service %s/%s uses: add it again, "+
				"or give the Service another address first", address, e.Shares[0].Namespace, e.Shares[0].Name)
		}
	}
	return nil
}

// ServeAlive serves GET /healthz at [addresses.AgentPort] of each of the Node's own addresses until
// ctx is done, for the watchers on other nodes.
func (a *Agent) ServeAlive(ctx context.Context) {
	handler := http.NewServeMux()
	handler.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Alive(time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	for ctx.Err() == nil {
		a.serveAlive(ctx, handler)
	}
}

// serveAlive serves until the addresses change. After a failure it returns in listenAgain: watchers
// check for longer before they report a node.
func (a *Agent) serveAlive(ctx context.Context, handler http.Handler) {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: 1 << 13,
		ReadTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Second,
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer func() { _ = server.Close() }() // and its listeners
	all := a.own.All()
	failed := make(chan error, len(all))
	for _, addr := range all {
		var lc net.ListenConfig
		listener, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(addr, addresses.AgentPort).String())
		if err != nil {
			failed <- err
			continue
		}
		workers.Go(func() { failed <- server.Serve(listener) })
	}
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.own.Changed():
			return
		case <-again:
			return
		case err := <-failed:
			klog.FromContext(ctx).Error(err, "Other nodes can't check whether this agent is alive, and take "+
				"its addresses away; free the port")
			again = time.After(listenAgain)
		}
	}
}
