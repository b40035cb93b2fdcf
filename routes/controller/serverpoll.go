package controller

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// serverPoll paces the requests for servers that aren't attached yet, for each Node
// by itself, whichever others wait: often at first, then seldom.
type serverPoll struct {
	nodes map[types.UID]pace
	last  time.Time
}

// pace is when to ask about a Node's server again, and how long the pause until then is.
type pace struct {
	due   time.Time
	pause time.Duration
}

const (
	// shortestPoll is the time between two requests for different Nodes.
	shortestPoll = time.Second
	// firstPoll and longestPoll are the least and the most time between two for one.
	firstPoll, longestPoll = 2 * time.Second, 5 * time.Minute
)

func newServerPoll() *serverPoll { return &serverPoll{nodes: map[types.UID]pace{}} }

// soon reports whether it is so nearly a Node's turn that a request for another one is as good as
// its own: those that wait for long come to wait together.
func (p *serverPoll) soon(node types.UID, now time.Time) bool {
	n := p.nodes[node]
	return n.due.Sub(now) <= n.pause/2
}

// polled notes that a Node's server was asked for. The pause grows only if that was
// about the Node's turn, and not for the sake of another.
func (p *serverPoll) polled(node types.UID, now time.Time) {
	n := p.nodes[node]
	if p.soon(node, now) {
		n.pause = min(max(firstPoll, 2*n.pause), longestPoll)
	}
	n.due, p.last = now.Add(n.pause), now
	p.nodes[node] = n
}

// wait is the time until a Node's server is to be asked for.
func (p *serverPoll) wait(node types.UID, now time.Time) time.Duration {
	if n, known := p.nodes[node]; known {
		return max(0, n.due.Sub(now))
	}
	return max(0, p.last.Add(shortestPoll).Sub(now))
}

// keep forgets Nodes that don't wait.
func (p *serverPoll) keep(waiting map[types.UID]bool) {
	maps.DeleteFunc(p.nodes, func(node types.UID, _ pace) bool { return !waiting[node] })
}
