package leadership

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease is a lease that this process holds.
type Lease struct {
	lock   *resourcelock.LeaseLock
	holder string // identity of this process in the lease
}

// Held reads a lease that the process has just acquired, and records its holder identity, which
// upstream's application generates from the host name and doesn't export. It returns an error if
// another host holds the lease.
func Held(
	ctx context.Context, client coordinationclient.LeasesGetter, namespace, name, host string,
) (*Lease, error) {
	l := &Lease{
		lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: client,
		},
	}
	record, _, err := l.lock.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading lease %s: %w", l.lock.Describe(), err)
	}
	if !strings.HasPrefix(record.HolderIdentity, host+"_") {
		return nil,
			fmt.Errorf("lease %s is held by %q, which isn't a process of %s", l.lock.Describe(),
				record.HolderIdentity, host)
	}
	l.holder = record.HolderIdentity
	return l, nil
}

// Release releases the lease if the process still holds it. Another process may acquire it at
// once, so the Gate must be closed before.
func (l *Lease) Release(ctx context.Context) error {
	record, _, err := l.lock.Get(ctx)
	if err != nil {
		return fmt.Errorf("reading lease %s: %w", l.lock.Describe(), err)
	}
	if record.HolderIdentity != l.holder {
		return nil
	}
	now := metav1.NewTime(time.Now())
	// Same record as client-go's election with ReleaseOnCancel.
	released := resourcelock.LeaderElectionRecord{
		LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now,
		AcquireTime: now,
	}
	if err := l.lock.Update(ctx, released); err != nil {
		return fmt.Errorf("releasing lease %s: %w", l.lock.Describe(), err)
	}
	return nil
}
