package agent

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
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

// ServeAlive serves GET /healthz at [addresses.AgentPort] of each address in the set until ctx is
// done, for the watchers on other nodes.
func ServeAlive(ctx context.Context, at *Set, alive func(now time.Time) error) {
	handler := http.NewServeMux()
	handler.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := alive(time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: 1 << 13,
		ReadTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Second,
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer func() { _ = server.Close() }() // and its listeners
	retry := time.NewTicker(listenAgain)
	defer retry.Stop()
	listeners, ended := map[netip.Addr]net.Listener{}, make(chan net.Listener)
	for {
		now := at.All()
		for addr, listener := range listeners {
			if !slices.Contains(now, addr) {
				_ = listener.Close()
				delete(listeners, addr)
			}
		}
		for _, addr := range now {
			if listeners[addr] != nil {
				continue
			}
			var lc net.ListenConfig
			listener, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(addr, addresses.AgentPort).String())
			if err != nil {
				klog.FromContext(ctx).Error(err,
					"Other nodes can't check whether this agent is alive, and take its "+
						"addresses away; free the port", "at", addr)
				continue
			}
			listeners[addr] = listener
			workers.Go(func() {
				err := server.Serve(listener)
				select {
				case <-ctx.Done():
					return
				case <-time.After(listenAgain):
				}
				select {
				case <-ctx.Done():
				case ended <- listener:
					klog.FromContext(ctx).V(2).Info("A listener has ended", "at", addr, "err", err)
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case listener := <-ended: // one that failed is still in the map
			maps.DeleteFunc(listeners, func(_ netip.Addr, one net.Listener) bool { return one == listener })
		case <-at.Changed():
		case <-retry.C:
		}
	}
}
