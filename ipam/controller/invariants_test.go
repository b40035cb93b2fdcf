package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// An invariants holds every write of podCIDRs against what may never happen, at the moment in which
// the API server applies it: what the Node gets is in the stored ledger under its name and UID,
// overlaps nothing that we gave another Node, nothing that is forbidden, nothing of a Node that has
// gone until its quarantine is over and its routes are gone. It reads the stored ledger by itself.
// The fake's lock protects it.
type invariants struct {
	api       *fakeAPI
	forbidden []netip.Prefix
	// quarantine is how long what a Node had may not go to another; it is not looked at where it is
	// 0.
	quarantine time.Duration
	gone       formers
	// held is what Nodes have that we gave it to.
	held formers
	// routesMatter: nothing may go to another Node while a route toward it stands.
	routesMatter bool
	// routes are those of all Nodes that ever had podCIDRs from us, until removeRoutes.
	routes formers

	ledgerGone bool      // by hand, and not made anew yet
	excused    time.Time // until then, what was sent before the ledger was lost may still arrive
	verdicts   []string
}

// former is who had a prefix.
type former struct {
	node types.UID
	name string
	id   string
	left time.Time
}

// lateness is the longest that a request is on its way after its sender gave up.
const lateness = time.Minute

func newUmpire(f *fakeAPI) invariants {
	return invariants{api: f, gone: formers{}, held: formers{}, routes: formers{}}
}

func (u *invariants) find(format string, args ...any) {
	verdict := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	u.verdicts = append(u.verdicts, verdict)
	u.api.log = append(u.api.log, "!! "+verdict)
}

// handedOut judges podCIDRs that we gave a Node.
func (u *invariants) handedOut(node *corev1.Node) {
	prefixes, _ := kube.PodCIDRs(node)
	me := former{node: node.UID, name: node.Name, id: node.Spec.ProviderID}
	for _, p := range prefixes {
		if !u.recorded(node, p) {
			u.find("%s/%s got %s, which is not recorded for it", node.Name, node.UID, p)
		}
		if other, ok := u.held.overlapping(p, func(o former) bool { return o.node == me.node }); ok {
			u.find("%s and %s both have %s", node.Name, other.name, p)
		}
		u.held.put(p, me)
		for _, f := range u.forbidden {
			if f.Overlaps(p) {
				u.find("%s got %s, which overlaps the forbidden %s", node.Name, p, f)
			}
		}
		if was, ok := u.gone.overlapping(p, me.is); ok && time.Since(was.left) < u.quarantine {
			u.find("%s got %s, which %s/%s had until %s ago", node.Name, p, was.name, was.node, time.Since(was.left))
		}
		if was, ok := u.routes.overlapping(p, me.is); ok && u.routesMatter {
			u.find("%s got %s, which is still routed to %s/%s", node.Name, p, was.name, was.node)
		}
		u.routes.put(p, me)
	}
}

// is reports whether another is the same Node, or its machine that came back.
func (f former) is(other former) bool {
	return other.node == f.node || other.name == f.name && other.id == f.id && f.id != ""
}

// formers are who had which prefix, by how long the prefixes are: what overlaps one is found
// without looking at all others.
type formers map[length]map[netip.Prefix]former

type length struct {
	ipv4 bool
	bits int
}

func lengthOf(p netip.Prefix) length { return length{p.Addr().Is4(), p.Bits()} }

func (x formers) put(p netip.Prefix, f former) {
	if x[lengthOf(p)] == nil {
		x[lengthOf(p)] = map[netip.Prefix]former{}
	}
	x[lengthOf(p)][p] = f
}

func (x formers) get(p netip.Prefix) former { return x[lengthOf(p)][p] }

// overlapping finds who else had something of a prefix.
func (x formers) overlapping(p netip.Prefix, same func(former) bool) (former, bool) {
	for at, held := range x {
		if at.ipv4 != p.Addr().Is4() {
			continue
		}
		if at.bits <= p.Bits() {
			if was, ok := held[netip.PrefixFrom(p.Addr(), at.bits).Masked()]; ok && !same(was) {
				return was, true
			}
			continue
		}
		for q, was := range held {
			if p.Overlaps(q) && !same(was) {
				return was, true
			}
		}
	}
	return former{}, false
}

// drop takes out what a condition holds for.
func (x formers) drop(is func(former) bool) {
	for _, held := range x {
		maps.DeleteFunc(held, func(_ netip.Prefix, f former) bool { return is(f) })
	}
}

// recorded reports whether the stored ledger has a prefix under a Node's name and UID, reserved for
// it, or given up with the note that a request may still write it: in each ConfigMap that guards a
// part of it, or still in the root, where whoever reads the ledger finds it.
func (u *invariants) recorded(node *corev1.Node, p netip.Prefix) bool {
	if u.ledgerGone || time.Now().Before(u.excused) {
		return true
	}
	root := u.api.ledger.data(ledgerName)
	if has(root, node, p) {
		return true
	}
	whole := false // the prefix lies in one block
	for key, listing := range root {
		number, shard := strings.CutPrefix(key, "_shard.")
		if !shard {
			continue
		}
		words := strings.Fields(listing)
		for _, word := range words[1:] {
			block := netip.MustParsePrefix(word)
			if !block.Overlaps(p) {
				continue
			}
			whole = whole || block.Bits() <= p.Bits()
			data := u.api.ledger.data(ledgerName + "-" + number)
			if data["_shard"] != words[0] || !has(data, node, p) {
				return false
			}
		}
	}
	return whole
}

// has reports whether a ConfigMap has a prefix under a Node's name and UID.
func has(data map[string]string, node *corev1.Node, p netip.Prefix) bool {
	for line := range strings.Lines(data[node.Name]) {
		words := strings.Fields(line)
		if !slices.Contains(words, "uid="+string(node.UID)) {
			continue
		}
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "released=") }) {
			return false
		}
		for _, word := range words {
			word = strings.TrimPrefix(word, "abandoned=")
			for _, one := range strings.Split(word, ",") {
				text, _, _ := strings.Cut(one, "@")
				if text == p.String() {
					return true
				}
			}
		}
	}
	return false
}

// departed notes what a Node had that is gone.
func (u *invariants) departed(node *corev1.Node) {
	if !u.api.byUs[node.UID] {
		return
	}
	prefixes, _ := kube.PodCIDRs(node)
	for _, p := range prefixes {
		// By now it may have the provider ID that it lacked when it was given its podCIDRs.
		was := former{node: node.UID, name: node.Name, id: node.Spec.ProviderID, left: time.Now()}
		u.gone.put(p, was)
		if u.routes.get(p).node == node.UID {
			u.routes.put(p, was)
		}
		if u.held.get(p).node == node.UID {
			delete(u.held[lengthOf(p)], p)
		}
	}
}

func (u *invariants) ledgerLost() { u.ledgerGone = true }

// ledgerMade: with the ledger, quarantines were forgotten, and nobody can know what Nodes had, and
// have routes for, that went before it was made anew.
func (u *invariants) ledgerMade() {
	if u.ledgerGone {
		u.ledgerGone, u.excused = false, time.Now().Add(lateness)
		clear(u.gone)
		u.removeRoutes()
	}
}

// removeRoutes removes the routes of Nodes that are gone.
func (u *invariants) removeRoutes() {
	u.routes.drop(func(was former) bool {
		now := u.api.node(was.name)
		return now == nil || now.UID != was.node
	})
}

// removeStaleRoutes is what a route controller does.
func (f *fakeAPI) removeStaleRoutes() {
	f.Lock()
	defer f.Unlock()
	f.removeRoutes()
	f.note("the routes of Nodes that are gone are removed")
}

// routed is the port of the controller that asks the route table.
func (f *fakeAPI) routed(p netip.Prefix) (routed, known bool) {
	f.Lock()
	defer f.Unlock()
	f.routesMatter = true
	_, routed = f.routes.overlapping(p, func(former) bool { return false })
	return routed, true
}

// broken returns what must never have happened.
func (f *fakeAPI) broken() []string {
	f.Lock()
	defer f.Unlock()
	return slices.Clone(f.verdicts)
}
