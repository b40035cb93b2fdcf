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

// Check returns the reasons why pools and exclusions can't be used: an error if they are
// invalid together, and the pools that they lack although Nodes hold prefixes of them
// according to the stored ledger in a namespace. It changes nothing. A ledger that can't be
// read is not reported: the controller waits for it.
func Check(
	ctx context.Context, client kubernetes.Interface, namespace string, pools []Pool,
	exclusions []netip.Prefix,
) ([]*RemovedPoolError, error) {
	facts := ipam.Facts{
		Pools: configs(pools), Exclusions: exclusions, Occupied: exclusions, Now: time.Now(),
	}
	if _, err := ipam.Rebuild(facts); err != nil {
		return nil, err
	}
	found, err := api{client: client, namespace: namespace}.read(ctx, Stored{})
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

// shownHolders limits the Nodes that an error names.
const shownHolders = 3

// A RemovedPoolError is a pool that is no longer configured, or has another range or node
// mask, while Nodes hold prefixes of it.
type RemovedPoolError struct {
	Pool    string
	Holders string // some of them, for messages
}

// Problem returns the error without its remedy.
func (e *RemovedPoolError) Problem() string {
	return "not configured any more as it was, but Nodes hold prefixes of it: " + e.Holders
}

// Remedy returns how to resolve the error.
func (e *RemovedPoolError) Remedy() string {
	return "configure it as before with state: draining, and remove it when these Nodes are gone"
}

func (e *RemovedPoolError) Error() string {
	return fmt.Sprintf("pool %q is %s: %s", e.Pool, e.Problem(), e.Remedy())
}
