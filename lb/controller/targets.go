package controller

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// targets are the servers that each Service's last plan wanted as targets. A node whose readiness
// comes and goes costs requests only where it is no target yet.
type targets struct {
	mu      sync.Mutex
	servers map[cache.ObjectName]map[int64]bool
}

// set replaces what is known of a Service.
func (t *targets) set(service cache.ObjectName, servers []int64) {
	wanted := make(map[int64]bool, len(servers))
	for _, id := range servers {
		wanted[id] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.servers == nil {
		t.servers = make(map[cache.ObjectName]map[int64]bool)
	}
	t.servers[service] = wanted
}

// forget drops what is known of a Service that is gone.
func (t *targets) forget(service cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.servers, service)
}

// has reports whether a server is known to be wanted as a Service's target.
func (t *targets) has(service cache.ObjectName, server int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servers[service][server]
}
