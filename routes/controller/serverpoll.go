package controller

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// serverPoll backs off the lookups of servers that aren't attached yet, separately for each Node.
type serverPoll struct {
	nodes map[types.UID]pause
	last  time.Time
}

const (
	// shortestPoll is the minimum time between lookups for different Nodes.
	shortestPoll = time.Second
	// firstPoll and longestPoll bound the pause between lookups for one Node.
	firstPoll, longestPoll = 2 * time.Second, 5 * time.Minute
)

// soon reports whether a Node is due soon enough to share the request of another Node.
func (p *serverPoll) soon(node types.UID, now time.Time) bool {
	n := p.nodes[node]
	return n.left(now) <= n.length/2
}

// polled records a lookup of a Node's server. The pause grows only if the Node was nearly due,
// and not for a lookup caused by another Node.
func (p *serverPoll) polled(node types.UID, now time.Time) {
	n := p.nodes[node]
	if p.soon(node, now) {
		n.first, n.longest = firstPoll, longestPoll
		n.begin(now)
	}
	n.until, p.last = now.Add(n.length), now
	p.nodes[node] = n
}

func (p *serverPoll) wait(node types.UID, now time.Time) time.Duration {
	if n, known := p.nodes[node]; known {
		return n.left(now)
	}
	return max(0, p.last.Add(shortestPoll).Sub(now))
}

func (p *serverPoll) keep(waiting map[types.UID]bool) {
	maps.DeleteFunc(p.nodes, func(node types.UID, _ pause) bool { return !waiting[node] })
}
