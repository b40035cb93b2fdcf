package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

const (
	// fileLimit limits the bytes of keys and values in a ConfigMap. The API server's limit is 1 MiB:
	// if all Nodes are deleted, their entries, of at least 57 bytes, take 40 more each.
	fileLimit = 600_000
	// fileMargin is more than any single Node adds to a ConfigMap.
	fileMargin = 1_000

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

// recorded reports whether the stored ledger has exactly the Ledger's holding of a Node. If not,
// the Node's entry is to be written at once.
func (d *decider) recorded(n *node) bool {
	if d.file.Recorded(n.UID) {
		return true
	}
	d.file.Update(n.Name, time.Now())
	return false
}

// noted marks a Node's entry to be written with the next write.
func (d *decider) noted(n *node) {
	patience := time.Second * time.Duration(d.file.Largest()) / lazyRate
	d.file.Update(n.Name, time.Now().Add(min(max(unhurried, patience), overdue)))
}

// full reports whether another Node might not be recorded.
func (d *decider) full() bool { return d.file.Largest()+fileMargin > fileLimit }

// atOnce is the number of changed entries that are written even if the queue is not empty, and the
// number of Nodes that are decided on before the first write.
const atOnce = 200

// write returns the next write of the stored ledger, or how long it has to wait.
func (d *decider) write() (r request, wait time.Duration) {
	object, due, ok := d.file.Due()
	if !ok || d.writing == writers || d.unwritten != nil ||
		d.queue.Len() > 0 && d.file.Pending() < atOnce {
		return nil, 0
	}
	now := time.Now()
	if wait = max(due.Sub(now), d.written.ReserveN(now, 0).DelayFrom(now)); wait > 0 {
		return nil, wait
	}
	w := d.file.Write(object)
	d.written.ReserveN(now, w.Bytes) // may exceed the limit: the next write waits
	d.writing++
	return d.objects.request(w), 0
}

func (r *ledgerRequest) handle(ctx context.Context, d *decider) error {
	d.writing--
	object := r.write.Object
	if r.err != nil {
		d.metrics.wrote(r.write, r.err)
		d.warnUnwritable(r.err)
		d.unwritten, d.failing = r.err, object
		d.objects[object] = nil
	} else {
		d.stored(r)
		if object == d.failing {
			d.pause = nil
		}
		for _, name := range r.write.Names {
			for _, n := range d.byName[name] {
				// A Node without a reservation may wait for an unrelated reason.
				if _, _, held := d.ledger.Held(n.UID); held && n.unserved() != nil && n.cached {
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

func (d *decider) stored(r *ledgerRequest) {
	d.metrics.wrote(r.write, nil)
	d.file.Wrote(r.write)
	d.objects[r.write.Object] = r.object
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
