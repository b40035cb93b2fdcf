package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// unhurried is how long an entry may wait for a write that goes out anyway, where another
	// process would find out the same by itself: that a Node is gone, that its quarantine is
	// over, what its provider ID is.
	unhurried = 10 * time.Second
	// writeRate bounds the writes in bytes a second. Each has the whole ledger, and etcd keeps
	// all of them until it compacts, every five minutes by default: 300 MB of the 2 GB that it
	// takes by default.
	writeRate = 1_000_000
)

// changed has a Node's entry of the stored ledger brought up to date at once.
func (d *decider) changed(n *node) { d.record(n, time.Now()) }

// noted has it brought up to date with the next write.
func (d *decider) noted(n *node) { d.record(n, time.Now().Add(unhurried)) }

func (d *decider) record(n *node, by time.Time) {
	records, _ := d.ledger.Records(n.Name)
	d.file.set(n.Name, records, by)
}

// recorded reports whether the stored ledger has of a UID exactly what the Ledger has.
func (d *decider) recorded(owner ipam.Node) bool {
	line, ok := d.ledger.Record(owner.UID)
	return ok && d.file.recorded(owner.Name, line)
}

// gather is how many changed entries go out although more names wait to be decided.
const gather = 200

// order gathers what is to be written now, or tells how long that has to wait. Where the pools'
// cursors stand is worth no write of its own.
func (d *decider) order(ctx context.Context) (o order, ok bool, wait time.Duration) {
	if d.writing || len(d.file.pending) == 0 || d.queue.Len() > 0 && len(d.file.pending) < gather {
		return order{}, false, 0
	}
	now := time.Now()
	if wait = max(d.file.due.Sub(now), d.rested.Sub(now)); wait > 0 {
		return order{}, false, wait
	}
	if !d.storable(ctx) || !d.file.stored.exists() {
		return order{}, false, 0
	}
	keys := d.file.differences()
	if len(keys) == 0 {
		return order{}, false, 0
	}
	d.setCursors()
	d.rested = now.Add(time.Second * time.Duration(d.file.size) / writeRate)
	return d.file.order(keys), true, 0
}

func (d *decider) setCursors() {
	for _, c := range d.ledger.Counts() {
		d.file.set(ipam.CursorPrefix+c.Name, d.ledger.Cursor(c.Name).String(), time.Now())
	}
}

// storable reports whether the ledger fits into its ConfigMap. One that doesn't, because Nodes
// with podCIDRs came from elsewhere, is kept in memory: nothing is handed out, and Nodes that have
// podCIDRs are observed and released as ever.
func (d *decider) storable(ctx context.Context) bool {
	fits := d.file.fits()
	if !fits && !d.oversized {
		text := fmt.Sprintf("The prefixes of %d Nodes don't fit into the stored ledger, one ConfigMap of %d bytes. Nodes that have podCIDRs are served; no other gets any. "+
			"Go on with the allocator that served them (start underlay-ccm with --allocate-node-cidrs=false), or run more and smaller clusters", d.file.holders(), storeLimit)
		klog.FromContext(ctx).Error(nil, text)
		d.tellLedger(reasonLedgerFull, text)
	}
	d.oversized = !fits
	return fits
}

// receive takes in what became of a write of the stored ledger. Whatever happened to one that
// failed: it is read again, and everything is planned anew. After a second failure in a row that
// waits, because what refuses one write may refuse the next.
func (d *decider) receive(ctx context.Context, r receipt) error {
	d.writing = false
	if r.err != nil {
		return d.unwritten(ctx, r.err)
	}
	d.pause = nil
	d.metrics.ledgerWrites.WithLabelValues("written").Inc()
	d.file.wrote(r)
	for _, key := range r.order.keys {
		for _, n := range d.byName[key] {
			// A Node that holds nothing may be waiting for what has nothing to do with this write.
			if _, held := d.ledger.Lookup(n.UID); held && n.phase == unserved && n.cached {
				d.request(n)
			}
		}
	}
	return nil
}

func (d *decider) unwritten(ctx context.Context, cause error) error {
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
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
	return d.load(ctx)
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
