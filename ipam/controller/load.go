package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

// damagedRetry is how long a damaged ledger waits for its repair before the next look.
const damagedRetry = 10 * time.Second

// load reads the stored ledger and plans anew from it and from all that is known about Nodes.
// It tries until that succeeds; meanwhile nothing is handed out. It returns an error only when
// the context ends or when the configuration contradicts what is stored.
func (d *decider) load(ctx context.Context) error {
	for again := backoff(); ; {
		retry, err := d.loadOnce(ctx)
		var broken *damage
		switch {
		case err == nil:
			d.loaded, d.damaged = true, false
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &broken):
			d.damaged = true
			d.tellLedger(reasonLedgerDamaged, err.Error())
		case !retry && !d.loaded:
			return err
		case !retry:
			// A person edited the ledger: what works goes on.
			d.tellLedger(reasonLedgerDamaged, err.Error())
		default:
			d.tellUnwritable(err)
		}
		d.metrics.unloaded.Inc()
		pause := again()
		if broken != nil || !retry {
			pause = damagedRetry
		}
		klog.FromContext(ctx).Error(err, "Nothing is handed out until the ledger is known; trying again", "in", pause)
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// loadOnce tries to load, and tells whether trying again can help.
func (d *decider) loadOnce(ctx context.Context) (retry bool, err error) {
	found, err := d.store.read(ctx)
	if err != nil {
		return true, err
	}
	if !found.lost() {
		var holders []*corev1.Node
		if d.damaged {
			// Whoever repaired it may have deleted what the cache doesn't show yet.
			if holders, err = d.listHolders(ctx); err != nil {
				return true, err
			}
		}
		return false, d.rebuild(ctx, found, holders)
	}
	if err := d.fence(ctx, found); err != nil {
		return true, err
	}
	if found, err = d.store.read(ctx); err != nil || !found.lost() {
		return true, cmp.Or(err, errors.New("another process stored the ledger meanwhile"))
	}
	holders, err := d.listUntilDone(ctx)
	if err != nil {
		return true, err
	}
	if err := d.rebuild(ctx, found, holders); err != nil {
		return false, err
	}
	d.setCursors()
	if !d.storable(ctx) {
		return false, nil
	}
	return true, d.storeAnew(ctx)
}

// storeAnew stores a ledger that was lost. It has an entry of each pool at least, and so doesn't
// look like one that somebody emptied.
func (d *decider) storeAnew(ctx context.Context) error {
	if d.book.stored.exists() {
		o := d.book.order(nil)
		version, err := d.store.write(ctx, o.object)
		if err == nil {
			d.book.wrote(receipt{order: o, version: version})
		}
		return err
	}
	made, err := d.store.create(ctx, d.book.desired)
	if err == nil {
		d.book.stored = made
	}
	return err
}

// storedAgain reports whether a ledger that was lost, and then too large to be stored, fits now.
func (d *decider) storedAgain() bool {
	return d.oversized && !d.book.stored.exists() && d.book.fits()
}

// fence waits until no process can be left that goes on from a ledger which is lost.
func (d *decider) fence(ctx context.Context, found stored) error {
	if d.First != nil {
		first, err := d.First(ctx)
		if err != nil {
			return err
		}
		if first {
			return nil
		}
	}
	what := "There is no stored ledger (ConfigMap %s/%s). If it was deleted"
	if found.exists() {
		what = "The stored ledger (ConfigMap %s/%s) has no entries. If it was emptied"
	}
	text := fmt.Sprintf(what+", what was reserved in it is lost: it is rebuilt from the Nodes, and nothing is handed out for %s, until no process goes on from the lost one", d.Namespace, LedgerName, d.Fence)
	klog.FromContext(ctx).Info(text)
	d.tellLedger(reasonLedgerLost, text)
	return sleep(ctx, d.Fence)
}

// rebuild makes the Ledger anew: from what is stored, from what this process reserved and may
// have sent already, and from the podCIDRs that Nodes are known to have.
func (d *decider) rebuild(ctx context.Context, s stored, holders []*corev1.Node) error {
	fresh, err := ipam.NewLedger(configs(d.Pools), d.Exclusions)
	if err != nil {
		return err
	}
	// Only what is configured can be refused. These come and go.
	fresh.SetExclusions(d.excluded())
	written, err := s.parse()
	if err != nil {
		return err
	}
	now := moment()
	for i, h := range written.holdings {
		if h.Released.After(now) { // a clock was wrong
			written.holdings[i].Released = now
		}
	}
	// Of two that overlap the older Node keeps: somebody else set the other's.
	slices.SortStableFunc(written.holdings, func(a, b ipam.Holding) int { return d.born(a).Compare(d.born(b)) })
	written.restore(fresh)
	if pools := removed(fresh.Removed()); len(pools) > 0 {
		return pools[0]
	}
	d.remember(fresh, s.lost())
	d.ledger, d.book = fresh, newBook(s)
	d.blockRoutes(ctx)
	for _, h := range fresh.Holdings() {
		n := d.identify(h.Node)
		if n.gone = !h.Released.IsZero(); n.gone {
			n.settled, n.podCIDRs = false, nil
			d.stopWaiting(n)
		}
		n.sent, n.doubt = true, true // by whoever recorded it
	}
	d.observeAll(ctx, holders)
	if !d.loaded {
		d.other.settle()
		d.tellSecondAllocator(ctx)
	}
	for key := range s.entries {
		if pool, ok := strings.CutPrefix(key, cursorPrefix); ok && !slices.ContainsFunc(d.Pools, func(p Pool) bool { return p.Name == pool }) {
			d.book.set(key, "", time.Now().Add(unhurried))
		}
	}
	for _, n := range d.nodes {
		d.noted(n)
		d.queue.Add(n.Name)
	}
	d.freed, d.stale = true, true
	d.expireIn(quarantineLook)
	return nil
}

// born is when the holder was created; now if it isn't in the cache.
func (d *decider) born(h ipam.Holding) time.Time {
	live, err := d.lister.Get(h.Node.Name)
	if err != nil || string(live.UID) != h.Node.UID {
		return time.Now()
	}
	return live.CreationTimestamp.Time
}

// remember adds to a restored Ledger what only this process knows: reservations that it may have
// sent, and quarantines that were never stored or were lost with the ledger. What it only planned
// is forgotten, and so is a quarantine that another process ended.
func (d *decider) remember(fresh *ipam.Ledger, lost bool) {
	for _, h := range d.ledger.Holdings() {
		n, ok := d.nodes[types.UID(h.Node.UID)]
		if !ok {
			continue
		}
		stored, known := fresh.Lookup(h.Node.UID)
		switch {
		case known && !h.Released.IsZero():
			fresh.Release(h.Node.UID, h.Released)
		case known && (h.Observed || !n.sent || slices.Equal(stored.Prefixes, h.Prefixes)):
		case known:
			stored.Abandoned = append(stored.Abandoned, h.Prefixes...)
			fresh.Free(h.Node.UID)
			fresh.Restore(stored)
		case !h.Released.IsZero():
			if before, _ := d.book.recorded(h.Node); lost || before.Released.IsZero() {
				fresh.Restore(h)
			}
		case n.sent && !h.Observed:
			fresh.Restore(h)
		}
	}
	for _, n := range d.nodes {
		if _, known := fresh.Lookup(n.UID); !known && n.gone {
			d.drop(n)
		}
	}
}

// observeAll observes every Node that is known to have podCIDRs, the oldest first, so that of
// two holders the older keeps.
func (d *decider) observeAll(ctx context.Context, holders []*corev1.Node) {
	found := map[types.UID]*corev1.Node{}
	for _, live := range holders {
		found[live.UID] = live
	}
	// The lister has no other error than a wrong selector.
	cached, _ := d.lister.List(labels.Everything())
	inCache := map[types.UID]bool{}
	for _, live := range cached {
		inCache[live.UID] = true
		if kube.HasPodCIDRs(live) {
			found[live.UID] = live
		}
	}
	for uid, n := range d.nodes {
		if _, ok := found[uid]; !ok && n.settled {
			d.observeAgain(ctx, n)
		}
	}
	oldestFirst := make([]*corev1.Node, 0, len(found))
	for _, live := range found {
		oldestFirst = append(oldestFirst, live)
	}
	slices.SortFunc(oldestFirst, func(a, b *corev1.Node) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Name, b.Name),
			strings.Compare(string(a.UID), string(b.UID)))
	})
	for _, live := range oldestFirst {
		n := d.track(live)
		if n.cached = n.cached || inCache[live.UID]; n.cached {
			n.inside = d.insidePools(live)
		}
		switch {
		case n.gone: // decide asks the API server
		case n.settled:
			d.observeAgain(ctx, n)
		default:
			d.observe(ctx, n, live)
		}
	}
}

// observeAgain tells a new Ledger what a Node was observed with before.
func (d *decider) observeAgain(ctx context.Context, n *node) {
	d.warn(ctx, d.look(n, n.podCIDRs))
}

// backoff returns growing pauses between tries.
func backoff() wait.DelayFunc {
	b := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: lastRetry}
	return b.DelayFunc()
}

// sleep waits, unless the context ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
