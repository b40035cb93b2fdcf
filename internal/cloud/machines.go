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

// Machines has all machines that a cluster's Nodes may run on, from three sources, and matches
// Nodes with them for all controllers. It is safe for concurrent use, and should be shared: it
// caches the index of each list.
type Machines struct {
	// Cloud lists the servers of the project.
	Cloud Servers
	// Robot lists the account's dedicated servers; nil if only the configuration has them. For
	// the zero time, any list is better than an error.
	Robot Inventory
	// Configured are the dedicated servers of the configuration, with unique numbers and names.
	Configured []Machine

	servers, dedicated atomic.Pointer[index] // of the latest lists

	mu     sync.Mutex
	listed map[int64]bool // numbers in all of Robot's lists so far
	// observations holds when they were first made.
	observations map[observation]time.Time
	swept        time.Time // when expired ones were last removed
}

// Doubt returns an error unless the current list of servers is that of the cluster's own
// project. Nodes without a provider ID, or with another provider's, don't count: without other
// Nodes, it returns nil and sends no request.
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

func (x *Machines) of(servers []Machine) *index {
	if last := x.servers.Load(); last != nil && last.isOf(servers) {
		return last
	}
	made := newIndex(servers, nil)
	x.servers.Store(made)
	return made
}

// dedicatedSince returns the index of the dedicated servers as of since, or of any age for the
// zero time.
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

// listedOnce reports whether Robot's list has contained the dedicated server since the process
// started, so that it is not another account's.
func (x *Machines) listedOnce(number int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.listed[number]
}

// numbered returns the dedicated server with the number. Its absence requires a list as new as
// born, the creation of the Node that has the number.
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
		return nil,
			fmt.Errorf("%w: no dedicated server of the account has the number %d of the provider ID",
				ErrNoMatch, number)
	}
}
