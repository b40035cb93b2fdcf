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

// seeAll records which Nodes exist before the table is listed.
func (c *Controller) seeAll() error {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	for _, node := range nodes {
		c.seen(node, time.Now())
	}
	return nil
}

// seen returns when a Node was first observed. Lists requested later are newer than the Node.
func (c *Controller) seen(node *corev1.Node, now time.Time) time.Time {
	since, known := c.firstSeen[node.UID]
	if !known {
		since, c.firstSeen[node.UID] = now, now
	}
	return since
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
	c.forget(alive)
}
