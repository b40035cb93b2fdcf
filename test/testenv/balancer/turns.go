package balancer

import (
	"sync"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// leastConnections is the algorithm beside round robin.
const leastConnections = "least_connections"

// turns selects the next of a service's targets, over all addresses at which the service listens.
type turns struct {
	mu   sync.Mutex
	next int
	open map[hcloudsim.PlaneTarget]int // connections
}

func newTurns() *turns { return &turns{open: map[hcloudsim.PlaneTarget]int{}} }

// take chooses the target of a connection, which ends with done. Round robin uses the targets in
// turn. Least connections uses the one with the fewest open connections, and of several the next in
// turn. There must be a target.
func (t *turns) take(
	algorithm string, targets []hcloudsim.PlaneTarget,
) (chosen hcloudsim.PlaneTarget, done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := t.next % len(targets)
	if algorithm == leastConnections {
		for i := range targets {
			candidate := (t.next + i) % len(targets)
			if t.open[targets[candidate]] < t.open[targets[best]] {
				best = candidate
			}
		}
	}
	t.next = best + 1
	chosen = targets[best]
	t.open[chosen]++
	return chosen, func() { t.release(chosen) }
}

func (t *turns) release(target hcloudsim.PlaneTarget) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[target]--; t.open[target] == 0 {
		delete(t.open, target)
	}
}
