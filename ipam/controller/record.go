package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/sleep"
	"github.com/underlay-ccm/underlay/ipam"
)

const (
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
func (d *decider) changed(n *node) { d.record(n, time.Now()) }

// noted marks it to be written with the next write.
func (d *decider) noted(n *node) { d.record(n, time.Now().Add(patience(d.file.Largest()))) }

// patience returns how long an entry may wait for a write of that many bytes.
func patience(bytes int) time.Duration {
	return min(max(unhurried, time.Second*time.Duration(bytes)/lazyRate), overdue)
}

func (d *decider) record(n *node, by time.Time) { d.file.Update(n.Name, by) }

// recorded reports whether the stored ledger has exactly the Ledger's holding of a UID.
func (d *decider) recorded(owner ipam.Node) bool { return d.file.Recorded(owner.UID) }

// atOnce is the number of changed entries that are written even if the queue is not empty.
const atOnce = 200

// order returns the next write, or how long it has to wait. A moved cursor alone causes no write.
func (d *decider) order(ctx context.Context) (o order, ok bool, wait time.Duration) {
	if d.writing {
		return order{}, false, 0
	}
	due, ok := d.file.Due()
	if !ok || !due.IsZero() && d.queue.Len() > 0 && d.file.Pending() < atOnce {
		return order{}, false, 0
	}
	now := time.Now()
	if wait = max(due.Sub(now), d.written.ReserveN(now, 0).DelayFrom(now)); wait > 0 {
		return order{}, false, wait
	}
	if !d.storable(ctx) || !d.file.exists() {
		return order{}, false, 0
	}
	w, due, ok := d.file.Next()
	if wait = due.Sub(now); !ok || wait > 0 {
		return order{}, false, max(wait, 0)
	}
	bytes, _ := d.file.Size(w.Object)
	d.written.ReserveN(now, bytes) // may exceed the limit: the next write waits
	return d.file.order(w), true, 0
}

// spread moves more of the ledger to shards if the root has many Nodes. It may take several
// calls, so that waiting Nodes are not delayed.
func (d *decider) spread() {
	_, names := d.file.Size(ipam.RootObject)
	if !d.spreads() || names < d.Shards.After && d.file.Guarding() == 0 {
		return
	}
	d.ledger.Spread()
	for d.file.crowded(d.Shards.After) && d.file.Relieve() {
		if d.file.fits() {
			return
		}
	}
}

// gather merges the shards into one ConfigMap if sharding is disabled.
func (d *decider) gather(ctx context.Context, written ipam.Stored) {
	if d.Shards.After > 0 || len(written.Shards) == 0 {
		return
	}
	if !d.file.gatherable() {
		text := fmt.Sprintf("The stored ledger stays in %d shards, although it is to be one ConfigMap: the prefixes of all Nodes don't fit into %d bytes. Set ledgerShards: auto, or delete Nodes",
			len(written.Shards), fileLimit)
		klog.FromContext(ctx).Error(nil, text)
		d.warnLedger(reasonLedgerFull, text)
		d.ledger.Spread()
		return
	}
	klog.FromContext(ctx).Info("The stored ledger goes back into one ConfigMap", "shards", len(written.Shards))
	d.ledger.Gather()
}

// storable reports whether the root fits into its ConfigMap. A root that doesn't fit, because
// of podCIDRs set by another component, is kept in memory: nothing is handed out, and Nodes
// with podCIDRs are observed and released as before.
func (d *decider) storable(ctx context.Context) bool {
	fits := d.file.fits()
	if !fits && !d.oversized {
		_, names := d.file.Size(ipam.RootObject)
		text := fmt.Sprintf("The prefixes of %d Nodes don't fit into the stored ledger's ConfigMap %s, which takes %d bytes. Nodes that have podCIDRs are served; no other gets any. "+
			"Set ledgerShards: auto; where that is set, go on with the allocator that served them (start underlay-ccm with --allocate-node-cidrs=false), or run more and smaller clusters", names, LedgerName, storeLimit)
		klog.FromContext(ctx).Error(nil, text)
		d.warnLedger(reasonLedgerFull, text)
	}
	d.oversized = !fits
	return fits
}

// spreads reports whether more of the ledger may move to shards. Pools cut from machines' own
// prefixes rule that out: the root must have those prefixes anyway.
func (d *decider) spreads() bool {
	return d.Shards.After > 0 && !d.refused && !slices.ContainsFunc(d.Pools, func(p Pool) bool { return p.Own })
}

// full reports whether another Node might not be recorded.
func (d *decider) full() bool {
	return d.file.full() && !(d.spreads() && d.file.Guarding() < ipam.MaxShards)
}

// receive handles the result of a write of the stored ledger. After a failure, whatever the
// cause, the ledger is read again and everything planned again. From the second failure in a
// row on it waits first, because the cause may persist.
func (d *decider) receive(ctx context.Context, r receipt) error {
	d.writing = false
	if r.err != nil {
		if r.write.Object != ipam.RootObject && (apierrors.IsForbidden(r.err) || apierrors.IsInvalid(r.err)) {
			d.refused = true // the root is used without shards then
		}
		return d.unwritten(ctx, r.write.Object, r.err)
	}
	d.pause = nil
	d.metrics.wrote(r.write)
	d.file.took(r)
	d.spread()
	for _, key := range recordable(r.write) {
		for _, n := range d.byName[key] {
			// A Node without a reservation may wait for an unrelated reason.
			if _, _, held := d.ledger.Held(n.UID); held && n.phase == unserved && n.cached {
				d.request(n)
			}
		}
	}
	return nil
}

// recordable returns the names that may be recorded after a write.
func recordable(w ipam.Write) []string {
	if !w.Opens {
		return w.Names
	}
	return slices.Collect(maps.Keys(w.Entries)) // keys that are no names match no Node
}

func (d *decider) unwritten(ctx context.Context, object int, cause error) error {
	d.metrics.ledgerWrites.WithLabelValues(writeOutcome(cause)).Inc()
	d.warnUnwritable(cause)
	var wait time.Duration
	if d.pause == nil {
		d.pause = backoff()
	} else {
		wait = d.pause()
	}
	klog.FromContext(ctx).Info("The stored ledger is not known to be written; reading it again", "err", cause, "in", wait)
	if wait > 0 {
		if err := sleep.For(ctx, wait); err != nil {
			return err
		}
	}
	return d.load(ctx, d.file.known(object))
}

// warnUnwritable sends an Event about a rejection that a retry doesn't resolve.
func (d *decider) warnUnwritable(err error) {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		d.warnLedger(reasonLedgerNotWritable, err.Error())
	}
}

func writeOutcome(err error) string {
	if apierrors.IsConflict(err) {
		return "conflict"
	}
	return "failed"
}
