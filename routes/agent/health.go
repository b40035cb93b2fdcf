package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// longestPass is far longer than a pass takes on the slowest machine.
const longestPass = 2 * time.Minute

// health is the state that probes report.
type health struct {
	mu      sync.Mutex
	decided bool
	problem error
	since   time.Time // start of the running pass; zero: none
}

func (h *health) began(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = now
}

func (h *health) ended() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = time.Time{}
}

func (h *health) report(problem error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decided, h.problem = true, problem
}

func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.decided {
		return errors.New("waiting for the Nodes from the API server")
	}
	return h.problem
}

func (h *health) alive(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.since.IsZero() && now.Sub(h.since) > longestPass {
		return fmt.Errorf("a look at the routes has been running since %s", h.since.Format(time.RFC3339))
	}
	return nil
}
