package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// changed has a Node's entry of the stored ledger brought up to date.
func (d *decider) changed(n *node) {
	records, _ := d.ledger.Records(n.Name)
	d.book.set(n.Name, records)
}

// gather is how many changed entries go out although more names wait to be decided.
const gather = 200

// order gathers what is to be written now. Where the pools' cursors stand is worth no write of
// its own.
func (d *decider) order() (order, bool) {
	if d.writing || len(d.book.dirty) == 0 || d.queue.Len() > 0 && len(d.book.dirty) < gather {
		return order{}, false
	}
	keys := d.book.differences()
	if len(keys) == 0 {
		return order{}, false
	}
	for _, c := range d.ledger.Counts() {
		d.book.set(cursorPrefix+c.Name, d.ledger.Cursor(c.Name).String())
	}
	return d.book.order(keys), true
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
	d.book.wrote(r)
	for _, key := range r.order.keys {
		for _, n := range d.byName[key] {
			if !n.settled && !n.gone && n.cached {
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
