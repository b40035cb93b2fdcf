package cloud

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Machines are all that a cluster's Nodes may run on, from three sources. Everything
// that matches Nodes with machines does it here: node lifecycle, the routes' gateways,
// and own prefixes. It is safe for concurrent use, and best shared, because it keeps the
// index of each list, and when Nodes' reports were first observed.
type Machines struct {
	// Cloud has the servers of the project.
	Cloud Servers
	// Robot has the account's dedicated servers; nil: Robot is not asked, and the
	// configuration has all of them. For the zero time any list is better than an error.
	Robot Inventory
	// Configured are dedicated servers of the configuration, each number and name once.
	Configured []Machine

	servers, dedicated atomic.Pointer[index] // of the latest lists

	mu      sync.Mutex
	listed  map[int64]bool // the numbers in all of Robot's lists so far
	reports map[reporter]reports
	swept   time.Time // when reports that are too old were forgotten
}

// Doubt returns an error unless the servers that are listed now are those of the
// cluster's own project. Nodes that have no provider ID yet, or another provider's,
// say nothing about that; where all are such, there is no doubt, and no request.
func (x *Machines) Doubt(ctx context.Context, nodes []*corev1.Node) error {
	identified := func(n *corev1.Node) bool {
		_, err := kube.ParseProviderID(n.Spec.ProviderID)
		return err == nil
	}
	if !slices.ContainsFunc(nodes, identified) {
		return nil
	}
	list, err := x.Cloud.List(ctx, time.Now())
	if err != nil {
		return err
	}
	return x.of(list).doubt(nodes)
}

// of returns the index of a list of the cloud's servers.
func (x *Machines) of(servers []Machine) *index {
	if last := x.servers.Load(); last != nil && last.isOf(servers) {
		return last
	}
	made := newIndex(servers, nil)
	x.servers.Store(made)
	return made
}

// dedicatedSince returns the index of the dedicated servers as of since; any age will do
// for the zero time.
func (x *Machines) dedicatedSince(ctx context.Context, since time.Time) (*index, error) {
	var list []Machine
	if x.Robot != nil {
		var err error
		if list, err = x.Robot.List(ctx, since); err != nil {
			return nil, fmt.Errorf("which dedicated servers there are is not known: %w: %w", errNotYet, err)
		}
	}
	if last := x.dedicated.Load(); last != nil && last.isOf(list) {
		return last, nil
	}
	made := newIndex(list, x.Configured)
	x.dedicated.Store(made)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.listed == nil {
		x.listed = map[int64]bool{}
	}
	for _, m := range list {
		x.listed[m.ID] = true
	}
	return made, nil
}

// listedOnce reports whether Robot's list has ever shown the dedicated server since the
// process began, so that it is no other account's.
func (x *Machines) listedOnce(number int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.listed[number]
}

// numbered returns the dedicated server with the number. That the account has none rests
// on a list that is as new as born, when the Node was made that has the number.
func (x *Machines) numbered(ctx context.Context, number int64, born time.Time) (*Machine, error) {
	ix, err := x.dedicatedSince(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	if ix.byID[number] == nil && x.Robot != nil {
		if ix, err = x.dedicatedSince(ctx, born); err != nil {
			return nil, err
		}
	}
	switch m := ix.byID[number]; {
	case m != nil:
		return m, nil
	case x.Robot == nil:
		return nil, fmt.Errorf("dedicated server %d: %w", number, kube.ErrOtherProvider)
	default:
		return nil, fmt.Errorf("%w: no dedicated server of the account has the number %d of the provider ID",
			ErrNoMatch, number)
	}
}
