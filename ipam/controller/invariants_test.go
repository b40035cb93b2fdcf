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

// invariants checks every write of podCIDRs at the moment in which the API server applies it. The
// prefixes must be in the stored ledger under the Node's name and UID. They must overlap no
// prefixes that the controller gave to another Node, no forbidden ranges, and no prefixes of a
// deleted Node before its quarantine is over and its routes are removed. It parses the stored
// ledger with code of its own. The fake's lock protects it.
type invariants struct {
	api       *fakeAPI
	forbidden []netip.Prefix
	// quarantine is the time in which a deleted Node's prefixes must not be assigned to another
	// Node; 0: not checked.
	quarantine time.Duration
	gone       formers
	// held has the prefixes that the controller gave to live Nodes.
	held formers
	// routesMatter forbids prefixes that are still routed to another Node.
	routesMatter bool
	// routes has the routes of all Nodes that ever got podCIDRs from the controller, until
	// removeRoutes.
	routes formers

	ledgerGone bool      // deleted by hand, and not recreated yet
	excused    time.Time // until then, requests sent before the loss of the ledger may arrive
	verdicts   []string
}

// former is the owner of a prefix.
type former struct {
	node types.UID
	name string
	id   string
	left time.Time
}

// lateness is the longest time that a request is in flight after its client gave up.
const lateness = time.Minute

func newUmpire(f *fakeAPI) invariants {
	return invariants{api: f, gone: formers{}, held: formers{}, routes: formers{}}
}

func (u *invariants) find(format string, args ...any) {
	verdict := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	u.verdicts = append(u.verdicts, verdict)
	u.api.log = append(u.api.log, "!! "+verdict)
}

// handedOut checks podCIDRs that the controller gave to a Node.
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

// is reports whether other is the same Node, or a new Node of the same machine and name.
func (f former) is(other former) bool {
	return other.node == f.node || other.name == f.name && other.id == f.id && f.id != ""
}

// formers has the owners of prefixes, by the prefixes' lengths, which keeps the search for an
// overlap short.
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

// overlapping returns another owner of a prefix that overlaps p.
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

// drop removes the owners for which is returns true.
func (x formers) drop(is func(former) bool) {
	for _, held := range x {
		maps.DeleteFunc(held, func(_ netip.Prefix, f former) bool { return is(f) })
	}
}

// recorded reports whether the stored ledger has the prefix under the Node's name and UID, reserved
// for it, or abandoned because a request may still write it: in each ConfigMap that records a part
// of the prefix. These are counted by the four bits before /20 or /60.
func (u *invariants) recorded(node *corev1.Node, p netip.Prefix) bool {
	if u.ledgerGone || time.Now().Before(u.excused) {
		return true
	}
	block := map[bool]int{true: 20, false: 60}[p.Addr().Is4()]
	first := int(p.Addr().AsSlice()[block/8] >> 4)
	for i := range 1 << min(4, max(0, block-p.Bits())) {
		if !has(u.api.ledger.data(ObjectName(first+i)), node, p) {
			return false
		}
	}
	return true
}

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

// departed records the prefixes of a deleted Node.
func (u *invariants) departed(node *corev1.Node) {
	if !u.api.byUs[node.UID] {
		return
	}
	prefixes, _ := kube.PodCIDRs(node)
	for _, p := range prefixes {
		// By now the Node may have the provider ID that it lacked when it got its podCIDRs.
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

// ledgerMade forgets quarantines, which were lost with the ledger, and the routes of Nodes that
// were deleted before it was recreated: no process can know them.
func (u *invariants) ledgerMade() {
	if u.ledgerGone {
		u.ledgerGone, u.excused = false, time.Now().Add(lateness)
		clear(u.gone)
		u.removeRoutes()
	}
}

// removeRoutes removes the routes of deleted Nodes.
func (u *invariants) removeRoutes() {
	u.routes.drop(func(was former) bool {
		now := u.api.node(was.name)
		return now == nil || now.UID != was.node
	})
}

// removeStaleRoutes does the work of a route controller.
func (f *fakeAPI) removeStaleRoutes() {
	f.Lock()
	defer f.Unlock()
	f.removeRoutes()
	f.note("the routes of Nodes that are gone are removed")
}

// routed is the controller's Routed port on the fake's routes.
func (f *fakeAPI) routed(p netip.Prefix) (routed, known bool) {
	f.Lock()
	defer f.Unlock()
	f.routesMatter = true
	_, routed = f.routes.overlapping(p, func(former) bool { return false })
	return routed, true
}

// broken returns the violations.
func (f *fakeAPI) broken() []string {
	f.Lock()
	defer f.Unlock()
	return slices.Clone(f.verdicts)
}
