package agent

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// friendsWithin limits a read of the kernel's table: ARP and NDP replies wait for it.
	friendsWithin = 200 * time.Millisecond
	// friendsEvery is the interval of reads, so that a machine's address is cached if it fails.
	friendsEvery = 30 * time.Second
	// solicitEvery is the minimum interval of resolving members because of an unknown hardware
	// address, and solicitTimeout limits the wait for their replies.
	solicitEvery   = time.Second
	solicitTimeout = 50 * time.Millisecond
	lookEvery      = 5 * time.Millisecond
)

// Friends caches the hardware addresses of cluster members. The kernel's table drops an entry soon
// after its machine fails; the cache keeps it.
type Friends struct {
	neighbors Neighbors

	mu        sync.Mutex
	members   map[netip.Addr]bool
	known     map[netip.Addr]string
	looked    time.Time
	solicited time.Time
}

// NewFriends returns a Friends with an empty cache.
func NewFriends(neighbors Neighbors) *Friends {
	return &Friends{neighbors: neighbors, known: map[netip.Addr]string{}}
}

// set replaces the members: the addresses of all other Nodes.
func (f *Friends) set(members []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = make(map[netip.Addr]bool, len(members))
	for _, m := range members {
		f.members[m] = true
	}
	for addr := range f.known {
		if !f.members[addr] {
			delete(f.known, addr)
		}
	}
}

// Run refreshes the cache until ctx is done.
func (f *Friends) Run(ctx context.Context) {
	for {
		f.look(ctx)
		f.solicit(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(friendsEvery):
		}
	}
}

// missing returns members without a hardware address, at most as many as a segment's table takes
// without evicting other entries.
func (f *Friends) missing() (unknown []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for m := range f.members {
		if _, known := f.known[m]; !known {
			unknown = append(unknown, m)
		}
	}
	slices.SortFunc(unknown, netip.Addr.Compare)
	return unknown[:min(len(unknown), 128)]
}

// Friend reports whether a hardware address belongs to a cluster member. If it is not cached,
// Friend reads the kernel's table, and at most once per solicitEvery resolves missing members: after
// a restart the cache is empty, and a member must not be reported as a conflict.
func (f *Friends) Friend(hardware net.HardwareAddr) bool {
	if f.knows(hardware) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), friendsWithin)
	defer cancel()
	f.mu.Lock()
	recent := time.Since(f.looked) < friendsWithin
	f.mu.Unlock()
	if !recent {
		if f.look(ctx); f.knows(hardware) {
			return true
		}
	}
	f.mu.Lock()
	may := time.Since(f.solicited) >= solicitEvery
	f.mu.Unlock()
	return may && f.solicit(ctx) && f.replied(ctx, hardware)
}

// solicit makes the kernel resolve missing members, and reports whether there are any.
func (f *Friends) solicit(ctx context.Context) bool {
	missing := f.missing()
	if len(missing) == 0 {
		return false
	}
	f.mu.Lock()
	f.solicited = time.Now()
	f.mu.Unlock()
	if err := f.neighbors.Solicit(ctx, missing); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Other machines of the cluster could not be listed", "err", err)
	}
	return true
}

func (f *Friends) replied(ctx context.Context, hardware net.HardwareAddr) bool {
	for until := time.Now().Add(solicitTimeout); time.Now().Before(until) && ctx.Err() == nil; {
		time.Sleep(lookEvery)
		if f.look(ctx); f.knows(hardware) {
			return true
		}
	}
	return false
}

func (f *Friends) knows(hardware net.HardwareAddr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range f.known {
		if known == string(hardware) {
			return true
		}
	}
	return false
}

func (f *Friends) look(ctx context.Context) {
	found, err := f.neighbors.Hardware(ctx)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The kernel's table of neighbors can't be read")
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = time.Now()
	for addr, hardware := range found {
		if f.members[addr] && len(hardware) > 0 {
			f.known[addr] = string(hardware)
		}
	}
}
