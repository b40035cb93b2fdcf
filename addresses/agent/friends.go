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
	// friendsWithin bounds a look at the kernel's table: whoever waits for it holds up answers.
	friendsWithin = 200 * time.Millisecond
	// friendsPause is the time from one look to the next while a machine that was asked for may answer.
	friendsPause = 10 * time.Millisecond
	// friendsEvery is how often the table is looked at without a question, so that a machine which
	// has failed is still known by its hardware address. As often one is waited for at most.
	friendsEvery = 30 * time.Second
)

// Friends tells which hardware addresses belong to machines of the cluster. It remembers what the
// kernel's table had once: an entry goes there soon after its machine.
type Friends struct {
	neighbors Neighbors

	mu      sync.Mutex
	members map[netip.Addr]bool
	known   map[netip.Addr]string
	looked  time.Time
	waited  time.Time     // when a stranger last might have been one of those that are missing
	joined  chan struct{} // capacity 1: there are others to ask for
}

// NewFriends knows nobody yet.
func NewFriends(neighbors Neighbors) *Friends {
	return &Friends{neighbors: neighbors, known: map[netip.Addr]string{}, joined: make(chan struct{}, 1)}
}

// set is given the addresses of all Nodes but this one.
func (f *Friends) set(members []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.members
	f.members = make(map[netip.Addr]bool, len(members))
	for _, m := range members {
		f.members[m] = true
		if before[m] {
			continue
		}
		// What was seen and asked before says nothing of this one.
		f.looked, f.waited = time.Time{}, time.Time{}
		select {
		case f.joined <- struct{}{}:
		default:
		}
	}
	for addr := range f.known {
		if !f.members[addr] {
			delete(f.known, addr)
		}
	}
}

// Run keeps the memory fresh until the context ends.
func (f *Friends) Run(ctx context.Context) {
	for {
		select { // all that there are now are looked for
		case <-f.joined:
		default:
		}
		f.look(ctx)
		if missing := f.missing(); len(missing) > 0 {
			if err := f.neighbors.Ask(ctx, missing); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(2).Info("Other machines of the cluster were not asked for", "err", err)
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

// missing are members whose hardware address nobody knows, at most as many as a segment's table
// takes without losing others.
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

// Friend reports whether a hardware address belongs to a machine of the cluster. It looks into the
// kernel's table if it doesn't know, but not often. Whoever is none of those that are known may be one
// that the kernel has not spoken with: those are asked for first.
func (f *Friends) Friend(hardware net.HardwareAddr) bool {
	if f.knows(hardware) {
		return true
	}
	f.mu.Lock()
	recent := time.Since(f.looked) < friendsWithin
	f.mu.Unlock()
	if recent {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), friendsWithin)
	defer cancel()
	f.look(ctx)
	if !f.knows(hardware) {
		f.await(ctx, hardware)
	}
	return f.knows(hardware)
}

// await asks for the machines that are missing, and looks again until one has that hardware address
// or all have answered.
func (f *Friends) await(ctx context.Context, hardware net.HardwareAddr) {
	missing := f.missing()
	f.mu.Lock()
	often := time.Since(f.waited) < friendsEvery
	f.mu.Unlock()
	if often || len(missing) == 0 || f.neighbors.Ask(ctx, missing) != nil {
		return
	}
	for !f.knows(hardware) && len(f.missing()) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(friendsPause):
			f.look(ctx)
			continue
		}
		break
	}
	f.mu.Lock()
	f.waited = time.Now()
	f.mu.Unlock()
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
