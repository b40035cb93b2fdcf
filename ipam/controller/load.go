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
	"github.com/underlay-ccm/underlay/internal/sleep"
	"github.com/underlay-ccm/underlay/ipam"
)

// damagedRetry is how long a damaged ledger waits for its repair before the next look.
const damagedRetry = 10 * time.Second

// load reads the stored ledger and plans anew from it and from all that is known about Nodes.
// It tries until that succeeds; meanwhile nothing is handed out. It returns an error only when
// the context ends or when the configuration contradicts what is stored.
//
// What is known of shards is not read again at the first try.
func (d *decider) load(ctx context.Context, known stored) error {
	for again := backoff(); ; known = (stored{}) {
		retry, err := d.loadOnce(ctx, known)
		var broken *ipam.DamagedEntry
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
		if err := sleep.For(ctx, pause); err != nil {
			return err
		}
	}
}

// loadOnce tries to load, and tells whether trying again can help.
func (d *decider) loadOnce(ctx context.Context, known stored) (retry bool, err error) {
	found, err := d.store.read(ctx, true, known)
	if err != nil {
		return true, err
	}
	if len(found.lost()) == 0 {
		var holders []*corev1.Node
		if d.damaged {
			// Whoever repaired it may have deleted what the cache doesn't show yet.
			if holders, err = d.listHolders(ctx); err != nil {
				return true, err
			}
		}
		return false, d.rebuild(ctx, found, holders)
	}
	first, err := d.fence(ctx, found)
	if err != nil {
		return true, err
	}
	if !first {
		if found, err = d.store.read(ctx, true, stored{}); err != nil || len(found.lost()) == 0 {
			return true, cmp.Or(err, errors.New("another process stored the ledger meanwhile"))
		}
	}
	holders, err := d.listUntilDone(ctx)
	if err != nil {
		return true, err
	}
	if err := d.rebuild(ctx, found, holders); err != nil {
		return false, err
	}
	if !d.storable(ctx) {
		return false, nil
	}
	return true, d.storeAnew(ctx)
}

// storeAnew stores a ledger that was lost, the root last. It has an entry of each pool at least,
// and so doesn't look like one that somebody emptied. A ConfigMap is made without any, and filled
// by a write that fits no other: a creation that arrives when its sender is long gone makes a
// ledger that is lost, not one that lacks what was handed out since.
func (d *decider) storeAnew(ctx context.Context) error {
	if !d.file.exists() {
		r := receipt{write: ipam.Write{Object: ipam.RootObject, Open: true}}
		if r.object, r.err = d.store.create(ctx, ipam.RootObject); r.err != nil {
			return r.err
		}
		d.file.took(r)
	}
	for {
		r := d.store.carryOut(ctx, d.file.order(d.file.Anew()))
		if r.err != nil {
			return r.err
		}
		d.file.took(r)
		if r.write.Object == ipam.RootObject {
			return nil
		}
	}
}

// storedAgain reports whether a ledger that was lost, and then too large to be stored, fits now.
func (d *decider) storedAgain() bool {
	return d.oversized && !d.file.exists() && d.file.fits()
}

// fence waits until no process can be left that goes on from a ledger which is lost. It reports
// whether there was never another process.
func (d *decider) fence(ctx context.Context, found stored) (first bool, err error) {
	if first, err = d.first(ctx, found); err != nil || first {
		return first, err
	}
	text := d.lostText(found)
	klog.FromContext(ctx).Info(text)
	d.tellLedger(reasonLedgerLost, text)
	return false, sleep.For(ctx, d.Fence)
}

// first reports whether nothing shows that another process ever handed out anything. The lease alone
// can't tell: it may have been deleted together with the ledger, and counts from 0 then.
func (d *decider) first(ctx context.Context, found stored) (first bool, err error) {
	shards := len(found.objects)
	if found.exists() {
		shards-- // one without entries is what is left of a start that failed
	}
	if d.First == nil || !found.unrooted() || shards > 0 {
		return false, nil
	}
	if first, err = d.First(ctx); err != nil || !first {
		return false, err
	}
	holders, err := d.listHolders(ctx)
	return err == nil && !slices.ContainsFunc(holders, func(live *corev1.Node) bool {
		manager, _, _ := kube.PodCIDRSetter(live)
		return manager == fieldManager
	}), err
}

// lostText says what was lost, and what happens now.
func (d *decider) lostText(found stored) string {
	var what string
	switch {
	case !found.exists():
		what = fmt.Sprintf("There is no stored ledger (ConfigMap %s/%s). If it was deleted", d.Namespace, LedgerName)
	case found.unrooted():
		what = fmt.Sprintf("The stored ledger (ConfigMap %s/%s) has no entries. If it was emptied", d.Namespace, LedgerName)
	default:
		what = fmt.Sprintf("A part of the stored ledger is not there or has no entries (in namespace %s: ConfigMap %s). If it was deleted or emptied",
			d.Namespace, strings.Join(found.lost(), ", "))
	}
	return what + fmt.Sprintf(", what was reserved in it is lost: it is rebuilt from the Nodes, and nothing is handed out for %s, until no process goes on from the lost one", d.Fence)
}

// rebuild makes the Ledger anew: from what is stored, from what this process reserved and may
// have sent already, and from the podCIDRs that Nodes are known to have.
func (d *decider) rebuild(ctx context.Context, s stored, holders []*corev1.Node) error {
	written, err := s.parse()
	if err != nil {
		return err
	}
	unstored := d.remember(written.Holdings, len(s.lost()) > 0)
	cached, found, nodes := d.known(holders)
	book, err := ipam.Rebuild(ipam.Facts{
		Pools: configs(d.Pools), Exclusions: d.Exclusions, Occupied: d.excluded(),
		Stored: written, Unstored: unstored, Nodes: nodes, Now: moment(), BlockBits: d.Shards.BlockBits,
	})
	if err != nil {
		return err
	}
	if pools := removed(book.Removed()); len(pools) > 0 {
		return pools[0]
	}
	d.ledger, d.file = book.Ledger, newLedgerFiles(book.Ledger, s)
	d.blockRoutes(ctx)
	for _, n := range d.nodes {
		if _, known := d.ledger.Lookup(n.UID); !known && n.gone() {
			d.drop(n)
		}
	}
	for _, h := range d.ledger.Holdings() {
		n := d.identify(h.Node)
		switch gone := !h.Released.IsZero(); {
		case gone && !n.gone():
			n.phase = released
			d.stopWaiting(n)
		case !gone:
			d.revive(n)
		}
		if n.gone() {
			d.count(n, h.Released)
		}
		n.delivery, n.doubt = max(n.delivery, maybeSent), true
	}
	for _, o := range book.Observed {
		uid := types.UID(o.Node.UID)
		live := found[uid]
		switch {
		case live == nil:
			d.warn(ctx, o.Warnings)
			continue
		case !kube.HasPodCIDRs(live):
			continue
		}
		n := d.track(live)
		if n.cached = n.cached || cached[uid]; n.cached {
			n.inside = d.insidePools(live)
		}
		switch {
		case n.gone(): // decide asks the API server
		case n.phase == settled:
			d.warn(ctx, o.Warnings)
		default:
			d.settle(ctx, n, live, o.Before, o.Warnings)
		}
	}
	if !d.loaded {
		d.other.settle()
		d.tellSecondAllocator(ctx)
	}
	for _, n := range d.nodes {
		d.noted(n)
		d.queue.Add(n.Name)
	}
	if len(s.lost()) == 0 {
		d.gather(ctx, written) // else at the next start: a shard that was lost is filled first
	}
	d.spread()
	d.freed, d.stale = true, true
	d.vacated = true // by Nodes that went before they were decided on
	d.expireIn(quarantineLook)
	return nil
}

// remember adds to what is stored what only this process knows: reservations that it may have
// sent, and quarantines that were never stored or were lost with the ledger. It returns those of
// Nodes of which nothing is stored. What it only planned is forgotten, and so is a quarantine
// that another process ended.
func (d *decider) remember(written []ipam.Holding, lost bool) (unstored []ipam.Holding) {
	recorded := map[string]*ipam.Holding{}
	for i := range written {
		recorded[written[i].Node.UID] = &written[i]
	}
	for _, h := range d.ledger.Holdings() {
		n, ok := d.nodes[types.UID(h.Node.UID)]
		if !ok {
			continue
		}
		stored, known := recorded[h.Node.UID]
		switch {
		case known && !h.Released.IsZero():
			if stored.Released.IsZero() {
				stored.Released = h.Released
			}
			if lost {
				keepAll(stored, h)
			}
		case known && (h.Observed || n.delivery == unsent || slices.Equal(stored.Prefixes, h.Prefixes)):
		case known:
			stored.Abandoned = append(stored.Abandoned, h.Prefixes...)
		case !h.Released.IsZero():
			if lost || !d.recorded(h.Node) {
				unstored = append(unstored, h)
			}
		case n.delivery != unsent && !h.Observed:
			unstored = append(unstored, h)
		}
	}
	return unstored
}

// keepAll adds to what is stored of a holding what another object may have lost of it.
func keepAll(stored *ipam.Holding, h ipam.Holding) {
	for _, p := range slices.Concat(h.Prefixes, h.Abandoned) {
		if !slices.Contains(stored.Prefixes, p) && !slices.Contains(stored.Abandoned, p) {
			stored.Abandoned = append(stored.Abandoned, p)
			stored.Pools[p] = h.Pools[p]
		}
	}
}

// known are the Nodes that the cache has, those that hold podCIDRs according to a live list, and
// those that were observed before and are in neither.
func (d *decider) known(holders []*corev1.Node) (cached map[types.UID]bool, found map[types.UID]*corev1.Node, nodes []ipam.LiveNode) {
	cached, found = map[types.UID]bool{}, map[types.UID]*corev1.Node{}
	for _, live := range holders {
		found[live.UID] = live
	}
	// The lister has no other error than a wrong selector.
	list, _ := d.lister.List(labels.Everything())
	for _, live := range list {
		cached[live.UID] = true
		if found[live.UID] == nil || kube.HasPodCIDRs(live) {
			found[live.UID] = live
		}
	}
	for _, live := range found {
		nodes = append(nodes, LiveNode(live))
	}
	for uid, n := range d.nodes {
		if _, ok := found[uid]; !ok && n.phase == settled {
			held, _ := d.ledger.Lookup(n.UID)
			nodes = append(nodes, ipam.LiveNode{Node: n.Node, PodCIDRs: held.Prefixes, Created: n.created})
		}
	}
	return cached, found, nodes
}

// LiveNode is a Node as a Ledger is rebuilt from it.
func LiveNode(live *corev1.Node) ipam.LiveNode {
	prefixes, _ := kube.PodCIDRs(live) // what can't be read is in nobody's way
	return ipam.LiveNode{
		Node:     ipam.Node{Name: live.Name, UID: string(live.UID), ProviderID: live.Spec.ProviderID},
		PodCIDRs: prefixes, Created: live.CreationTimestamp.Time,
	}
}

// backoff returns growing pauses between tries.
func backoff() wait.DelayFunc {
	b := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: lastRetry}
	return b.DelayFunc()
}
