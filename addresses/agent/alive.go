package agent

import (
	"context"
	"errors"
	"fmt"
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
	// listenAgain is the pause after a failed attempt to listen.
	listenAgain = 5 * time.Second
)

// Alive returns an error if the agent's loop is stuck.
func (a *Agent) Alive(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if since := now.Sub(a.beat); since > stuckAfter {
		return fmt.Errorf("this node's addresses have not been looked at for %s", since.Round(time.Second))
	}
	return nil
}

// ServeAlive serves GET /healthz at [addresses.AgentPort] of each address in the set until ctx is done,
// for the watchers on other nodes.
func ServeAlive(ctx context.Context, at *Set, alive func(now time.Time) error) {
	handler := http.NewServeMux()
	handler.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := alive(time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	kick := make(chan struct{}, 1)
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() {
		at.Watch(ctx, func() {
			select {
			case kick <- struct{}{}:
			default:
			}
		})
	})
	serving := map[netip.Addr]context.CancelFunc{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-kick:
		}
		now := at.All()
		for addr, stop := range serving {
			if !slices.Contains(now, addr) {
				stop()
				delete(serving, addr)
			}
		}
		for _, addr := range now {
			if serving[addr] == nil {
				alone, stop := context.WithCancel(ctx)
				serving[addr] = stop
				workers.Go(func() { serveAt(alone, netip.AddrPortFrom(addr, addresses.AgentPort), handler) })
			}
		}
	}
}

// serveAt serves at an address, and retries while it can't listen.
func serveAt(ctx context.Context, at netip.AddrPort, handler http.Handler) {
	for ctx.Err() == nil {
		var lc net.ListenConfig
		listener, err := lc.Listen(ctx, "tcp", at.String())
		if err == nil {
			server := &http.Server{
				Handler: handler, MaxHeaderBytes: 1 << 13,
				ReadTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Second,
			}
			stop := context.AfterFunc(ctx, func() { _ = server.Close() })
			err = server.Serve(listener)
			stop()
		}
		if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
			return
		}
		klog.FromContext(ctx).Error(err, "Other nodes can't check whether this agent is alive, and take its "+
			"addresses away; free the port", "at", at)
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}
