package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/ipam"
)

// Check tells what keeps pools and exclusions from being used: that they are impossible together,
// or, as the stored ledger in a namespace shows, that they lack pools of which Nodes still hold
// prefixes. It changes nothing. A ledger that can't be read is no reason: the controller waits
// for that.
func Check(ctx context.Context, client kubernetes.Interface, namespace string, pools []Pool, exclusions []netip.Prefix) ([]*RemovedPoolError, error) {
	facts := ipam.Facts{Pools: configs(pools), Exclusions: exclusions, Occupied: exclusions, Now: time.Now()}
	if _, err := ipam.Rebuild(facts); err != nil {
		return nil, err
	}
	found, err := store{client, namespace}.read(ctx, false, stored{})
	if err != nil {
		return nil, nil
	}
	if facts.Stored, err = found.parse(); err != nil {
		return nil, nil
	}
	book, err := ipam.Rebuild(facts)
	if err != nil {
		return nil, err
	}
	return removed(book.Removed()), nil
}

// removed explains why the configuration can't be used with what is stored.
func removed(orphans []ipam.Orphan) []*RemovedPoolError {
	nodes := map[string][]string{}
	for _, o := range orphans {
		nodes[o.Pool] = append(nodes[o.Pool], fmt.Sprintf("%s (%s)", o.Node.Name, o.Prefix))
	}
	var out []*RemovedPoolError
	for _, pool := range slices.Sorted(maps.Keys(nodes)) {
		held := nodes[pool]
		more := ""
		if len(held) > shownHolders {
			more = fmt.Sprintf(" and %d more", len(held)-shownHolders)
			held = held[:shownHolders]
		}
		out = append(out, &RemovedPoolError{Pool: pool, Holders: strings.Join(held, ", ") + more})
	}
	return out
}

// shownHolders is how many Nodes an error names.
const shownHolders = 3

// A RemovedPoolError is a pool that is no longer configured, or with another range or node mask,
// while Nodes hold prefixes of it.
type RemovedPoolError struct {
	Pool    string
	Holders string // some of them, for people
}

// Problem is the error without what to do about it, for who shows them apart.
func (e *RemovedPoolError) Problem() string {
	return "not configured any more as it was, but Nodes hold prefixes of it: " + e.Holders
}

// Remedy is what to do about it.
func (e *RemovedPoolError) Remedy() string {
	return "configure it as before with state: draining, and remove it when these Nodes are gone"
}

func (e *RemovedPoolError) Error() string {
	return fmt.Sprintf("pool %q is %s: %s", e.Pool, e.Problem(), e.Remedy())
}
