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
	// unhurried is how long an entry may wait at least for a write that goes out anyway, where
	// another process would find out the same by itself: that a Node is gone, that its quarantine
	// is over, what its provider ID is. It waits longer where a write has more to carry, so that
	// such entries alone write no more than lazyRate, in bytes a second, and never longer than
	// overdue.
	unhurried = 10 * time.Second
	lazyRate  = 200
	overdue   = 5 * time.Minute
	// writeRate bounds the writes in bytes a second, writeBurst those of a moment after a rest, so
	// that many Nodes that join at once don't wait. Each write has a whole ConfigMap, and etcd
	// keeps all of them until it compacts, every five minutes by default: 310 MB of the 2 GB that
	// it takes by default.
	writeRate  = 1_000_000
	writeBurst = 10_000_000
)

// changed has a Node's entry of the stored ledger brought up to date at once.
func (d *decider) changed(n *node) { d.record(n, time.Now()) }

// noted has it brought up to date with the next write.
func (d *decider) noted(n *node) { d.record(n, time.Now().Add(patience(d.file.Largest()))) }

// patience is how long an entry may wait for a write of so many bytes.
func patience(bytes int) time.Duration {
	return min(max(unhurried, time.Second*time.Duration(bytes)/lazyRate), overdue)
}

func (d *decider) record(n *node, by time.Time) { d.file.Update(n.Name, by) }

// recorded reports whether the stored ledger has of a UID exactly what the Ledger has.
func (d *decider) recorded(owner ipam.Node) bool { return d.file.Recorded(owner.UID) }

// atOnce is how many changed entries go out although more names wait to be decided.
const atOnce = 200

// order gathers what is to be written now, or tells how long that has to wait. Where the pools'
// cursors stand is worth no write of its own.
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
	d.written.ReserveN(now, bytes) // may be owed: what comes next waits
	return d.file.order(w), true, 0
}

// spread has more of the ledger go to shards, where the root has many Nodes. It may take several
// steps, so that Nodes that wait are not kept from what they need.
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

// gather has a ledger that is spread go back into one ConfigMap, where that is asked for.
func (d *decider) gather(ctx context.Context, written ipam.Stored) {
	if d.Shards.After > 0 || len(written.Shards) == 0 {
		return
	}
	if !d.file.gatherable() {
		text := fmt.Sprintf("The stored ledger stays in %d shards, although it is to be one ConfigMap: the prefixes of all Nodes don't fit into %d bytes. Set ledgerShards: auto, or delete Nodes",
			len(written.Shards), fileLimit)
		klog.FromContext(ctx).Error(nil, text)
		d.tellLedger(reasonLedgerFull, text)
		d.ledger.Spread()
		return
	}
	klog.FromContext(ctx).Info("The stored ledger goes back into one ConfigMap", "shards", len(written.Shards))
	d.ledger.Gather()
}

// storable reports whether the root fits into its ConfigMap. One that doesn't, because Nodes with
// podCIDRs came from elsewhere, is kept in memory: nothing is handed out, and Nodes that have
// podCIDRs are observed and released as ever.
func (d *decider) storable(ctx context.Context) bool {
	fits := d.file.fits()
	if !fits && !d.oversized {
		_, names := d.file.Size(ipam.RootObject)
		text := fmt.Sprintf("The prefixes of %d Nodes don't fit into the stored ledger's ConfigMap %s, which takes %d bytes. Nodes that have podCIDRs are served; no other gets any. "+
			"Set ledgerShards: auto; where that is set, go on with the allocator that served them (start underlay-ccm with --allocate-node-cidrs=false), or run more and smaller clusters", names, LedgerName, storeLimit)
		klog.FromContext(ctx).Error(nil, text)
		d.tellLedger(reasonLedgerFull, text)
	}
	d.oversized = !fits
	return fits
}

// spreads reports whether more of the ledger may go to shards. Where pools are cut from machines'
// own prefixes nothing would be gained: the root has to have those anyway.
func (d *decider) spreads() bool {
	return d.Shards.After > 0 && !d.refused && !slices.ContainsFunc(d.Pools, func(p Pool) bool { return p.Own })
}

// full reports whether one more Node might not be recorded.
func (d *decider) full() bool {
	return d.file.full() && !(d.spreads() && d.file.Guarding() < ipam.MaxShards)
}

// receive takes in what became of a write of the stored ledger. Whatever happened to one that
// failed: it is read again, and everything is planned anew. After a second failure in a row that
// waits, because what refuses one write may refuse the next.
func (d *decider) receive(ctx context.Context, r receipt) error {
	d.writing = false
	if r.err != nil {
		if r.write.Object != ipam.RootObject && (apierrors.IsForbidden(r.err) || apierrors.IsInvalid(r.err)) {
			d.refused = true // the root goes on without it
		}
		return d.unwritten(ctx, r.write.Object, r.err)
	}
	d.pause = nil
	d.metrics.wrote(r.write)
	d.file.took(r)
	d.spread()
	for _, key := range recordable(r.write) {
		for _, n := range d.byName[key] {
			// A Node that holds nothing may be waiting for what has nothing to do with this write.
			if _, held := d.ledger.Lookup(n.UID); held && n.phase == unserved && n.cached {
				d.request(n)
			}
		}
	}
	return nil
}

// recordable are the names that may be recorded now.
func recordable(w ipam.Write) []string {
	if !w.Opens {
		return w.Names
	}
	return slices.Collect(maps.Keys(w.Entries)) // those that are no names nobody has
}

func (d *decider) unwritten(ctx context.Context, object int, cause error) error {
	d.metrics.ledgerWrites.WithLabelValues(writeOutcome(cause)).Inc()
	d.tellUnwritable(cause)
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

// tellUnwritable warns about a refusal that waiting doesn't mend.
func (d *decider) tellUnwritable(err error) {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		d.tellLedger(reasonLedgerNotWritable, err.Error())
	}
}

func writeOutcome(err error) string {
	if apierrors.IsConflict(err) {
		return "conflict"
	}
	return "failed"
}
