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

// Lease is a lease that this process holds. It is safe for concurrent use.
type Lease struct {
	lock   resourcelock.LeaseLock // to copy: it has the lease that it read
	holder string                 // identity of this process in the lease
}

// Held reads a lease that the process has just acquired, and records its holder identity, which
// upstream's application generates from the host name and doesn't export. It returns an error if
// another host holds the lease.
func Held(
	ctx context.Context, client coordinationclient.LeasesGetter, namespace, name, host string,
) (*Lease, error) {
	l := &Lease{
		lock: resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: client,
		},
	}
	_, record, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(record.HolderIdentity, host+"_") {
		return nil,
			fmt.Errorf("lease %s is held by %q, which isn't a process of %s", l.lock.Describe(),
				record.HolderIdentity, host)
	}
	l.holder = record.HolderIdentity
	return l, nil
}

func (l *Lease) read(
	ctx context.Context,
) (*resourcelock.LeaseLock, *resourcelock.LeaderElectionRecord, error) {
	lock := l.lock
	record, _, err := lock.Get(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("reading lease %s: %w", lock.Describe(), err)
	}
	return &lock, record, nil
}

// Check returns an error unless the process still holds the lease. A process that was suspended
// may act as a leader for a moment before its elector finds another one.
func (l *Lease) Check(ctx context.Context) error {
	lock, record, err := l.read(ctx)
	if err == nil && record.HolderIdentity != l.holder {
		err = fmt.Errorf("lease %s is held by %q now", lock.Describe(), record.HolderIdentity)
	}
	return err
}

// Release releases the lease if the process still holds it. Another process may acquire it at
// once, so the Gate must be closed before.
func (l *Lease) Release(ctx context.Context) error {
	lock, record, err := l.read(ctx)
	if err != nil {
		return err
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
	if err := lock.Update(ctx, released); err != nil {
		return fmt.Errorf("releasing lease %s: %w", lock.Describe(), err)
	}
	return nil
}
