package controller

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// serverPoll backs off the lookups of servers that aren't attached yet, separately for each Node.
type serverPoll struct {
	nodes map[types.UID]pace
	last  time.Time
}

// pace is when a Node's server is due to be looked up, and the length of the pause until then.
type pace struct {
	due   time.Time
	pause time.Duration
}

const (
	// shortestPoll is the minimum time between lookups for different Nodes.
	shortestPoll = time.Second
	// firstPoll and longestPoll bound the pause between lookups for one Node.
	firstPoll, longestPoll = 2 * time.Second, 5 * time.Minute
)

func newServerPoll() *serverPoll { return &serverPoll{nodes: map[types.UID]pace{}} }

// soon reports whether a Node is due soon enough to share the request of another Node.
func (p *serverPoll) soon(node types.UID, now time.Time) bool {
	n := p.nodes[node]
	return n.due.Sub(now) <= n.pause/2
}

// polled records a lookup of a Node's server. The pause grows only if the Node was nearly due,
// and not for a lookup caused by another Node.
func (p *serverPoll) polled(node types.UID, now time.Time) {
	n := p.nodes[node]
	if p.soon(node, now) {
		n.pause = min(max(firstPoll, 2*n.pause), longestPoll)
	}
	n.due, p.last = now.Add(n.pause), now
	p.nodes[node] = n
}

func (p *serverPoll) wait(node types.UID, now time.Time) time.Duration {
	if n, known := p.nodes[node]; known {
		return max(0, n.due.Sub(now))
	}
	return max(0, p.last.Add(shortestPoll).Sub(now))
}

func (p *serverPoll) keep(waiting map[types.UID]bool) {
	maps.DeleteFunc(p.nodes, func(node types.UID, _ pace) bool { return !waiting[node] })
}
