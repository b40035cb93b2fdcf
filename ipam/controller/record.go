package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/sleep"
	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// fileLimit limits the bytes of keys and values in a ConfigMap (API server: 1 MiB).
	fileLimit = 1_000_000
	// fileMargin is more than any single Node adds to a ConfigMap.
	fileMargin = 1_000
	// farewell is what the deletion of a Node adds to its entry, in bytes. All may be deleted.
	farewell = 40

	// unhurried is the minimum time that an entry may wait to be included in another write, if
	// another process would detect its change by itself: a deleted Node, the end of a
	// quarantine, a provider ID. It waits longer if a write is larger, so that such entries
	// alone cause at most lazyRate bytes per second, and never longer than overdue.
	unhurried = 10 * time.Second
	lazyRate  = 200
	overdue   = 5 * time.Minute
	// writeRate limits the writes in bytes per second. writeBurst is the burst, so that many Nodes
	// that join at once don't wait. Each write has a whole ConfigMap, and etcd keeps all revisions
	// until it compacts, by default every five minutes: 310 MB of the 2 GB that it has by default.
	writeRate  = 1_000_000
	writeBurst = 10_000_000
)

// changed marks a Node's entry of the stored ledger to be written at once.
func (d *decider) changed(n *node) { d.file.Update(n.Name, time.Now()) }

// noted marks it to be written with the next write.
func (d *decider) noted(n *node) {
	bytes, _ := d.largest()
	d.file.Update(n.Name, time.Now().Add(patience(bytes)))
}

// patience returns how long an entry may wait for a write of that many bytes.
func patience(bytes int) time.Duration {
	return min(max(unhurried, time.Second*time.Duration(bytes)/lazyRate), overdue)
}

// recorded reports whether the stored ledger has exactly the Ledger's holding of a UID.
func (d *decider) recorded(owner ipam.Node) bool { return d.file.Recorded(owner.UID) }

// largest returns the size of the largest ConfigMap of the stored ledger.
func (d *decider) largest() (bytes, names int) {
	for object := range ipam.Shards {
		if b, n := d.file.Size(object); b > bytes {
			bytes, names = b, n
		}
	}
	return bytes, names
}

// full reports whether another Node might not be recorded.
func (d *decider) full() bool {
	bytes, names := d.largest()
	return bytes+farewell*names+fileMargin > fileLimit
}

// atOnce is the number of changed entries that are written even if the queue is not empty.
const atOnce = 200

// order returns the next write, or how long it has to wait.
func (d *decider) order() (o order, ok bool, wait time.Duration) {
	object, due, ok := d.file.Due()
	if !ok || d.writing == writers || d.unwritten != nil ||
		d.queue.Len() > 0 && d.file.Pending() < atOnce {
		return order{}, false, 0
	}
	now := time.Now()
	if wait = max(due.Sub(now), d.written.ReserveN(now, 0).DelayFrom(now)); wait > 0 {
		return order{}, false, wait
	}
	bytes, _ := d.file.Size(object)
	d.written.ReserveN(now, bytes) // may exceed the limit: the next write waits
	d.writing++
	return d.objects.order(d.file.Write(object)), true, 0
}

// receive handles the result of a write of the stored ledger.
func (d *decider) receive(ctx context.Context, o order) error {
	d.writing--
	if o.err != nil {
		d.metrics.ledgerWrites.WithLabelValues(writeOutcome(o.err)).Inc()
		d.warnUnwritable(o.err)
		d.unwritten, d.failing = o.err, o.write.Object
		d.objects[o.write.Object] = nil
	} else {
		d.took(o)
		if o.write.Object == d.failing {
			d.pause = nil
		}
		for _, name := range o.write.Names {
			for _, n := range d.byName[name] {
				// A Node without a reservation may wait for an unrelated reason.
				if _, _, held := d.ledger.Held(n.UID); held && n.phase == unserved && n.cached {
					d.request(n)
				}
			}
		}
	}
	if d.unwritten != nil && d.writing == 0 {
		return d.reload(ctx)
	}
	return nil
}

func (d *decider) took(o order) {
	d.metrics.wrote(o.write)
	d.file.Wrote(o.write)
	d.objects[o.write.Object] = o.object
}

// reload reads the ledger again and plans everything again after a failed write, whatever the
// cause, when no other write is in flight. From the second failure in a row on it waits first,
// because the cause may persist.
func (d *decider) reload(ctx context.Context) error {
	var wait time.Duration
	if d.pause == nil {
		d.pause = backoff()
	} else {
		wait = d.pause()
	}
	klog.FromContext(ctx).Info("The stored ledger is not known to be written; reading it again", "err",
		d.unwritten, "in", wait)
	if wait > 0 {
		if err := sleep.For(ctx, wait); err != nil {
			return err
		}
	}
	d.unwritten = nil
	return d.load(ctx, d.objects)
}

// warnUnwritable sends an Event about a rejection that a retry doesn't resolve.
func (d *decider) warnUnwritable(err error) {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
		apierrors.IsRequestEntityTooLargeError(err) {
		d.warnLedger(reasonLedgerNotWritable, err.Error())
	}
}

func writeOutcome(err error) string {
	if apierrors.IsConflict(err) {
		return "conflict"
	}
	return "failed"
}
