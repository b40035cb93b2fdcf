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

// Lease is one that this process holds.
type Lease struct {
	lock   *resourcelock.LeaseLock
	holder string // this process, as it is named there
}

// Held reads a lease that the process has just got, and remembers by which name.
// Upstream's application makes that name from the host's and keeps it to itself.
// The error says that somebody else has the lease.
func Held(ctx context.Context, client coordinationclient.LeasesGetter, namespace, name, host string) (*Lease, error) {
	l := &Lease{lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: client}}
	record, _, err := l.lock.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading lease %s: %w", l.lock.Describe(), err)
	}
	if !strings.HasPrefix(record.HolderIdentity, host+"_") {
		return nil, fmt.Errorf("lease %s is held by %q, which isn't a process of %s", l.lock.Describe(), record.HolderIdentity, host)
	}
	l.holder = record.HolderIdentity
	return l, nil
}

// Release gives the lease back, if the process still holds it: another one may
// take it at once. Only a closed Gate makes that safe.
func (l *Lease) Release(ctx context.Context) error {
	record, _, err := l.lock.Get(ctx)
	if err != nil {
		return fmt.Errorf("reading lease %s: %w", l.lock.Describe(), err)
	}
	if record.HolderIdentity != l.holder {
		return nil
	}
	now := metav1.NewTime(time.Now())
	// As client-go's election does with ReleaseOnCancel.
	released := resourcelock.LeaderElectionRecord{
		LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
	}
	if err := l.lock.Update(ctx, released); err != nil {
		return fmt.Errorf("releasing lease %s: %w", l.lock.Describe(), err)
	}
	return nil
}
