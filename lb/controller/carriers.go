package controller

import (
	"maps"
	"slices"
	"sync"
)

// carriers remembers which Services the labels of shared load balancers name, by their groups, so
// that a Service which left one leads to it. What it lacks is found by the regular look.
type carriers struct {
	mu   sync.Mutex
	uids map[string][]string
}

// set replaces what is known of a group.
func (c *carriers) set(group string, uids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uids == nil {
		c.uids = make(map[string][]string)
	}
	c.uids[group] = uids
	if len(uids) == 0 {
		delete(c.uids, group)
	}
}

// add tells that a group's load balancer names a Service.
func (c *carriers) add(group, uid string) {
	if !slices.Contains(c.of(uid), group) {
		c.mu.Lock()
		uids := slices.Clone(c.uids[group])
		c.mu.Unlock()
		c.set(group, append(uids, uid))
	}
}

// known reports whether a group has a load balancer that names any Service.
func (c *carriers) known(group string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.uids[group]) > 0
}

// of are the groups whose load balancers name a Service, sorted.
func (c *carriers) of(uid string) (groups []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, group := range slices.Sorted(maps.Keys(c.uids)) {
		if slices.Contains(c.uids[group], uid) {
			groups = append(groups, group)
		}
	}
	return groups
}
