package controller

import (
	"maps"
	"slices"
	"sync"
)

// carriers remembers which Services the labels of shared load balancers name, so that a Service which
// left a group leads to it. What it lacks is found by the regular look.
type carriers struct {
	mu sync.Mutex
	// uids are those of the Services by their groups, groups the same the other way round.
	uids   map[string][]string
	groups map[string]map[string]bool
}

func newCarriers() *carriers {
	return &carriers{uids: make(map[string][]string), groups: make(map[string]map[string]bool)}
}

// set replaces what is known of a group.
func (c *carriers) set(group string, uids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range c.uids[group] {
		if delete(c.groups[uid], group); len(c.groups[uid]) == 0 {
			delete(c.groups, uid)
		}
	}
	delete(c.uids, group)
	for _, uid := range uids {
		c.put(group, uid)
	}
}

// add tells that a group's load balancer names a Service.
func (c *carriers) add(group, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.groups[uid][group] {
		c.put(group, uid)
	}
}

func (c *carriers) put(group, uid string) {
	c.uids[group] = append(c.uids[group], uid)
	if c.groups[uid] == nil {
		c.groups[uid] = make(map[string]bool)
	}
	c.groups[uid][group] = true
}

// known reports whether a group has a load balancer that names any Service.
func (c *carriers) known(group string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.uids[group]) > 0
}

// of are the groups whose load balancers name a Service, sorted.
func (c *carriers) of(uid string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.groups[uid]))
}
