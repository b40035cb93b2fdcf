package agent

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// friendsWithin limits a read of the kernel's table: ARP and NDP replies wait for it. It is also
	// the minimum interval of reads because of an unknown hardware address.
	friendsWithin = 200 * time.Millisecond
	// friendsEvery is the interval of resolving missing members, and of reads, so that a machine's
	// address is cached if it fails.
	friendsEvery = 10 * time.Second
)

// Friends caches the hardware addresses of cluster members. The kernel's table drops an entry soon
// after its machine fails; the cache keeps it.
type Friends struct {
	neighbors Neighbors

	mu      sync.Mutex
	members map[netip.Addr]bool
	known   map[netip.Addr]string
	looked  time.Time
	joined  chan struct{}
}

// NewFriends returns a Friends with an empty cache.
func NewFriends(neighbors Neighbors) *Friends {
	return &Friends{
		neighbors: neighbors, known: map[netip.Addr]string{}, joined: make(chan struct{}, 1),
	}
}

// set replaces the members: the addresses of all other Nodes.
func (f *Friends) set(members []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.members
	f.members = make(map[netip.Addr]bool, len(members))
	for _, m := range members {
		f.members[m] = true
		if !before[m] {
			notify(f.joined)
		}
	}
	maps.DeleteFunc(f.known, func(addr netip.Addr, _ string) bool { return !f.members[addr] })
}

// Run refreshes the cache, and makes the kernel resolve missing members, until ctx is done.
func (f *Friends) Run(ctx context.Context) {
	for {
		f.look(ctx)
		if missing := f.missing(); len(missing) > 0 {
			if err := f.neighbors.Solicit(ctx, missing); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(2).Info("Other machines of the cluster could not be listed", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-f.joined:
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
// Friend reads the kernel's table.
func (f *Friends) Friend(hardware net.HardwareAddr) bool {
	cached, read := f.cached(hardware)
	if cached || time.Since(read) < friendsWithin {
		return cached
	}
	ctx, cancel := context.WithTimeout(context.Background(), friendsWithin)
	defer cancel()
	f.look(ctx)
	cached, _ = f.cached(hardware)
	return cached
}

// cached reports whether the cache has a hardware address, and returns the time of the last read.
func (f *Friends) cached(hardware net.HardwareAddr) (cached bool, read time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range f.known {
		cached = cached || known == string(hardware)
	}
	return cached, f.looked
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
