package leadership

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// Lease is a lease that this process holds. It is safe for concurrent use.
type Lease struct {
	leases coordinationclient.LeaseInterface
	name   string
	holder string // identity of this process in the lease
}

// Held reads a lease that the process has just acquired, and records its holder identity, which
// upstream's application generates from the host name and doesn't export. It returns an error if
// another host holds the lease.
func Held(
	ctx context.Context, client coordinationclient.LeasesGetter, namespace, name, host string,
) (*Lease, error) {
	l := &Lease{leases: client.Leases(namespace), name: name}
	_, holder, err := l.read(ctx)
	if err == nil && !strings.HasPrefix(holder, host+"_") {
		err = fmt.Errorf("lease %s is held by %q, which isn't a process of %s", name, holder, host)
	}
	l.holder = holder
	return l, err
}

func (l *Lease) read(ctx context.Context) (live *coordinationv1.Lease, holder string, err error) {
	live, err = l.leases.Get(ctx, l.name, metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("reading lease %s: %w", l.name, err)
	}
	return live, ptr.Deref(live.Spec.HolderIdentity, ""), nil
}

// Check returns an error unless the process still holds the lease. A process that was suspended
// may act as a leader for a moment before its elector finds another one.
func (l *Lease) Check(ctx context.Context) error {
	_, holder, err := l.read(ctx)
	if err == nil && holder != l.holder {
		err = fmt.Errorf("lease %s is held by %q now", l.name, holder)
	}
	return err
}

// Release releases the lease if the process still holds it. Another process may acquire it at
// once, so the Gate must be closed before.
func (l *Lease) Release(ctx context.Context) error {
	live, holder, err := l.read(ctx)
	if err != nil || holder != l.holder {
		return err
	}
	now := metav1.NewMicroTime(time.Now())
	// As client-go's election with ReleaseOnCancel.
	live.Spec.HolderIdentity, live.Spec.LeaseDurationSeconds = nil, ptr.To[int32](1)
	live.Spec.RenewTime, live.Spec.AcquireTime = &now, &now
	if _, err := l.leases.Update(ctx, live, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("releasing lease %s: %w", l.name, err)
	}
	return nil
}
