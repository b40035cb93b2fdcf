package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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

// damagedRetry is the pause between reads of a damaged ledger until it is repaired.
const damagedRetry = 10 * time.Second

// load reads the stored ledger and rebuilds the state from it and from the observed Nodes. It
// retries until it succeeds; nothing is handed out before. It returns an error only if the
// context ends or the configuration conflicts with the stored ledger. The first try doesn't read
// the known ConfigMaps again.
func (d *decider) load(ctx context.Context, known Stored) error {
	for again := backoff(); ; known = (Stored{}) {
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
			d.warnLedger(reasonLedgerDamaged, err.Error())
		case !retry && !d.loaded:
			return err
		case !retry:
			// The ledger was edited by hand: keep the controllers running.
			d.warnLedger(reasonLedgerDamaged, err.Error())
		default:
			d.warnUnwritable(err)
		}
		d.metrics.unloaded.Inc()
		pause := again()
		if broken != nil || !retry {
			pause = damagedRetry
		}
		klog.FromContext(ctx).Error(err, "Nothing is handed out until the ledger is known; trying again",
			"in", pause)
		if err := sleep.For(ctx, pause); err != nil {
			return err
		}
	}
}

// loadOnce tries to load, and reports whether a retry can help.
func (d *decider) loadOnce(ctx context.Context, known Stored) (retry bool, err error) {
	found, err := d.api.read(ctx, known)
	if err != nil {
		return true, err
	}
	if len(found.Entries().Lost()) == 0 {
		var holders []*corev1.Node
		if d.damaged {
			// The repair may have deleted entries of Nodes that are not in the cache yet.
			if holders, err = d.listHolders(ctx); err != nil {
				return true, err
			}
		}
		return false, d.rebuild(ctx, found, holders)
	}
	if _, err := found.parse(); err != nil {
		return true, err
	}
	first, err := d.fence(ctx, found)
	if err != nil {
		return true, err
	}
	if !first {
		if found, err = d.api.read(ctx, Stored{}); err != nil || len(found.Entries().Lost()) == 0 {
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
	return true, d.storeAnew(ctx)
}

// storeAnew stores what is lost of the ledger. A ConfigMap is created without entries and filled by
// an update of that version: a create request that arrives long after its sender ended results in
// a lost ledger, and not in one that lacks later reservations. All exist before the first is
// filled, so that a start that fails leaves no sign of an earlier process.
func (d *decider) storeAnew(ctx context.Context) error {
	lost := d.objects.Entries().Lost()
	err := each(ctx, lost, func(ctx context.Context, object int) (err error) {
		if d.objects[object] == nil {
			d.objects[object], err = d.api.create(ctx, object)
		}
		return err
	})
	if err != nil {
		return err
	}
	var requests [ipam.Shards]*ledgerRequest
	for _, object := range lost {
		requests[object] = d.objects.request(d.file.Write(object))
	}
	err = each(ctx, lost, func(ctx context.Context, object int) error {
		requests[object].send(ctx, d.api)
		return requests[object].err
	})
	if err != nil {
		return err
	}
	for _, object := range lost {
		d.stored(requests[object])
	}
	return nil
}

// fence waits until no process with a lost ledger can be left, unless first reports true.
func (d *decider) fence(ctx context.Context, found Stored) (first bool, err error) {
	if first, err = d.first(ctx, found); err != nil || first {
		return first, err
	}
	var names []string
	for _, object := range found.Entries().Lost() {
		names = append(names, ObjectName(object))
	}
	text := fmt.Sprintf("The stored ledger lacks ConfigMaps, or their entries (in namespace %s: %s). If they were deleted or emptied, reservations are lost: it is rebuilt from the Nodes, and nothing is handed out for %s, until no process can continue from the lost one",
		d.Namespace, strings.Join(names, ", "), d.Fence)
	klog.FromContext(ctx).Info(text)
	d.warnLedger(reasonLedgerLost, text)
	return false, sleep.For(ctx, d.Fence)
}

// first reports whether there is no sign that another process ever handed out a prefix. The lease
// alone is not enough: it may have been deleted together with the ledger, and counts from 0 then.
func (d *decider) first(ctx context.Context, found Stored) (first bool, err error) {
	if _, inUse := found.Made(); d.First == nil || inUse {
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

// rebuild replaces the Ledger: from the stored ledger, the reservations that this process made
// and may have sent, and the observed podCIDRs of Nodes.
func (d *decider) rebuild(ctx context.Context, s Stored, holders []*corev1.Node) error {
	written, err := s.parse()
	if err != nil {
		return err
	}
	lost := len(s.Entries().Lost()) > 0
	unstored := d.remember(written, lost)
	found, nodes := d.known(holders)
	book, err := ipam.Rebuild(ipam.Facts{
		Pools: configs(d.Pools), Exclusions: d.Exclusions, Occupied: d.excluded(),
		Stored: written, Unstored: unstored, Nodes: nodes, Now: moment(),
	})
	if err != nil {
		return err
	}
	if pools := removed(book.Removed()); len(pools) > 0 {
		return pools[0]
	}
	d.ledger, d.file, d.objects = book.Ledger, ipam.NewFiles(book.Ledger, s.Entries()), s
	d.blockRoutes(ctx)
	for _, n := range d.nodes {
		if _, _, known := d.ledger.Held(n.UID); !known && n.gone() {
			d.drop(n)
		}
	}
	for _, h := range d.ledger.Holdings() {
		n := d.identify(h.Node)
		switch {
		case !h.Released.IsZero():
			d.depart(n, h.Released)
		case n.gone(): // its record is gone, and the cache may still have the Node
			n.phase, d.stale = &unserved{}, true
		}
		if u := n.unserved(); u != nil {
			u.delivery = max(u.delivery, maybeSent)
		}
	}
	for _, o := range book.Observed {
		live := found[types.UID(o.Node.UID)]
		switch {
		case live == nil:
			d.warn(ctx, o.Warnings)
			continue
		case !kube.HasPodCIDRs(live):
			d.queue.Add(live.Name)
			continue
		}
		n := d.track(live)
		if n.cached = n.cached || d.cachedNode(n.Node) != nil; n.cached {
			n.inside = d.insidePools(live)
		}
		switch {
		case n.gone(): // decide reads it from the API server
		case n.settled():
			d.warn(ctx, o.Warnings)
		default:
			d.settle(ctx, n, live, o.Before.Prefixes, o.Warnings)
		}
	}
	if !d.loaded {
		d.other.settle()
		d.warnSecondAllocator(ctx)
	}
	for _, n := range d.nodes {
		decided := d.decided(n)
		if lost || d.loaded || d.damaged || !decided {
			d.noted(n)
		}
		if lost || !decided {
			d.queue.Add(n.Name)
		}
	}
	d.freed, d.stale, d.rebuilt = true, true, true
	d.expireIn(quarantineLook)
	return nil
}

// remember adds state of this process to the stored holdings: reservations that it may have
// sent, and quarantines that were never stored or were lost with the ledger. It returns the
// holdings of Nodes without a record. Reservations that were not sent are dropped, and so are
// quarantines that another process ended.
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
			if lost || !d.file.Recorded(h.Node.UID) {
				keepAll(stored, h)
			}
		case known && (h.Observed || !n.delivered() || slices.Equal(stored.Prefixes, h.Prefixes)):
		case known:
			stored.Abandoned = append(stored.Abandoned, h.Prefixes...)
		case !h.Released.IsZero():
			if lost || !d.file.Recorded(h.Node.UID) {
				unstored = append(unstored, h)
			}
		case n.delivered() && !h.Observed:
			unstored = append(unstored, h)
		}
	}
	return unstored
}

// keepAll adds prefixes to a stored holding that another object may have lost.
func keepAll(stored *ipam.Holding, h ipam.Holding) {
	for _, p := range slices.Concat(h.Prefixes, h.Abandoned) {
		if !slices.Contains(stored.Prefixes, p) && !slices.Contains(stored.Abandoned, p) {
			stored.Abandoned = append(stored.Abandoned, p)
			stored.Pools[p] = h.Pools[p]
		}
	}
}

// known returns the Nodes of the cache and of the live list, and those only observed before.
func (d *decider) known(
	holders []*corev1.Node,
) (found map[types.UID]*corev1.Node, nodes []ipam.LiveNode) {
	found = map[types.UID]*corev1.Node{}
	for _, live := range holders {
		found[live.UID] = live
	}
	// The lister's only error is an invalid selector.
	list, _ := d.lister.List(labels.Everything())
	for _, live := range list {
		if found[live.UID] == nil || kube.HasPodCIDRs(live) {
			found[live.UID] = live
		}
	}
	known := map[types.UID]ipam.LiveNode{}
	for uid, live := range found {
		known[uid] = LiveNode(live)
	}
	for uid, n := range d.nodes {
		if live := found[uid]; n.settled() && (live == nil || !kube.HasPodCIDRs(live)) {
			held, _, _ := d.ledger.Held(n.UID) // the cache is older than the reply to the PATCH
			known[uid] = ipam.LiveNode{Node: n.Node, PodCIDRs: held, Created: n.created}
		}
	}
	return found, slices.Collect(maps.Values(known))
}

// LiveNode converts a Node for [ipam.Rebuild].
func LiveNode(live *corev1.Node) ipam.LiveNode {
	prefixes, _ := kube.PodCIDRs(live) // a podCIDR that can't be parsed overlaps nothing
	return ipam.LiveNode{
		Node:     ipam.Node{Name: live.Name, UID: string(live.UID), ProviderID: live.Spec.ProviderID},
		PodCIDRs: prefixes, Created: live.CreationTimestamp.Time,
	}
}

// backoff returns increasing pauses between tries.
func backoff() wait.DelayFunc {
	b := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: lastRetry}
	return b.DelayFunc()
}
