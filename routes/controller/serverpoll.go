package controller

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// serverPoll paces the lists of servers that are asked for because some aren't
// attached yet: often at first, then seldom, and often again when other nodes wait.
type serverPoll struct {
	backoff    workqueue.TypedRateLimiter[string]
	waiting    string
	last, next time.Time
}

// shortestPoll is the time between two lists for different nodes.
const shortestPoll = time.Second

func newServerPoll() *serverPoll {
	return &serverPoll{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](2*time.Second, 5*time.Minute)}
}

// due reports whether to list now for the nodes that wait.
func (p *serverPoll) due(waiting string, now time.Time) bool {
	return p.wait(waiting, now) == 0
}

// polled notes that a list was asked for, and which nodes still wait.
func (p *serverPoll) polled(waiting string, now time.Time) {
	if waiting != p.waiting {
		p.backoff.Forget(p.waiting)
		p.waiting = waiting
	}
	p.last = now
	if waiting != "" {
		p.next = now.Add(p.backoff.When(waiting))
	}
}

// wait is the time until the next list for the nodes that wait.
func (p *serverPoll) wait(waiting string, now time.Time) time.Duration {
	if waiting != p.waiting {
		return max(0, p.last.Add(shortestPoll).Sub(now))
	}
	return max(0, p.next.Sub(now))
}
