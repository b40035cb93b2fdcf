package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// nodes returns all Nodes, and records when each was first observed: lists of the table that are
// requested later are newer than the Node.
func (c *Controller) nodes() ([]*corev1.Node, error) {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	now := time.Now()
	for _, node := range nodes {
		if _, known := c.firstSeen[node.UID]; !known {
			c.firstSeen[node.UID] = now
		}
	}
	return nodes, nil
}

// unseen reports whether a destination is in no list and no write of ours at since or later.
func (c *Controller) unseen(dsts []netip.Prefix, since time.Time) bool {
	return c.requested.Before(since) && slices.ContainsFunc(dsts, func(dst netip.Prefix) bool {
		return c.written[dst].Before(since)
	})
}

// settles returns when every deletion of these destinations has taken effect, or zero if the table
// was listed after that.
func (c *Controller) settles(dsts []netip.Prefix) (at time.Time) {
	for _, dst := range dsts {
		if end := c.unsettled[dst]; at.Before(end) {
			at = end
		}
	}
	return at
}

// forgetGone drops the state of Nodes that are not among uids.
func (c *Controller) forgetGone(uids map[string]types.UID) {
	alive := make(map[types.UID]bool, len(uids))
	for _, uid := range uids {
		alive[uid] = true
	}
	maps.DeleteFunc(c.firstSeen, func(uid types.UID, _ time.Time) bool { return !alive[uid] })
	c.newest.Prune(func(n *corev1.Node) (*corev1.Node, error) { return c.lister.Get(n.Name) })
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.posted, func(uid types.UID, _ posted) bool { return !alive[uid] })
}
