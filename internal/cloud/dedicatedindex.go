package cloud

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// DedicatedIndex knows dedicated servers: those of the account and those of the
// inventory. A nil one knows none. It is safe for concurrent use, and best shared.
type DedicatedIndex struct {
	// Account tells which there are; nil: nobody does, and the inventory is all.
	Account DedicatedServers
	// Inventory are servers that are known beforehand, each number and name once.
	Inventory []Dedicated

	last atomic.Pointer[dedicatedIndex]

	mu   sync.Mutex
	seen map[int64]bool // the numbers of all lists so far
}

// look returns what is known as of since; any age will do for the zero time.
func (x *DedicatedIndex) look(ctx context.Context, since time.Time) (*dedicatedIndex, error) {
	if x == nil {
		return &dedicatedIndex{}, nil
	}
	var listed []Dedicated
	if x.Account != nil {
		var err error
		if listed, err = x.Account.List(ctx, since); err != nil {
			return nil, fmt.Errorf("which dedicated servers there are is not known: %w: %w", errNotYet, err)
		}
	}
	if last := x.last.Load(); last != nil && last.isOf(listed) {
		return last, nil
	}
	made := newDedicatedIndex(listed, x.Inventory)
	x.last.Store(made)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen == nil {
		x.seen = map[int64]bool{}
	}
	for _, d := range listed {
		x.seen[d.Number] = true
	}
	return made, nil
}

// listedOnce reports whether the account's list has ever shown the server since the
// process began, so that it is no other account's.
func (x *DedicatedIndex) listedOnce(number int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen[number]
}

// numbered returns the server with the number. That the account has none rests on
// a list that is as new as born, when the Node was made that has the number.
func (x *DedicatedIndex) numbered(ctx context.Context, number int64, born time.Time) (*Dedicated, error) {
	ix, err := x.look(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	if ix.byNumber[number] == nil && x != nil && x.Account != nil {
		if ix, err = x.look(ctx, born); err != nil {
			return nil, err
		}
	}
	switch d := ix.byNumber[number]; {
	case d != nil:
		return d, nil
	case x == nil || x.Account == nil: // nobody who would know
		return nil, fmt.Errorf("dedicated server %d: %w", number, kube.ErrOtherProvider)
	default:
		return nil, fmt.Errorf("%w: no dedicated server of the account has the number %d of the provider ID", ErrNoMatch, number)
	}
}

// dedicatedIndex finds dedicated servers by all that a Node may know of its own.
type dedicatedIndex struct {
	listed   []Dedicated
	byNumber map[int64]*Dedicated
	byName   map[string][]*Dedicated
	byAddr   map[netip.Addr]*Dedicated
	byPrefix map[netip.Prefix]*Dedicated // their own /64
	// wrong is what the inventory says against the account's list, by number.
	wrong map[int64][]string
}

// newDedicatedIndex joins the account's list and the inventory. The list is right
// wherever it says something, and the inventory adds the rest.
func newDedicatedIndex(listed, inventory []Dedicated) *dedicatedIndex {
	ix := &dedicatedIndex{
		listed: listed, byNumber: map[int64]*Dedicated{}, byName: map[string][]*Dedicated{},
		byAddr: map[netip.Addr]*Dedicated{}, byPrefix: map[netip.Prefix]*Dedicated{},
		wrong: map[int64][]string{},
	}
	for i := range listed {
		ix.add(&listed[i])
	}
	for _, entry := range inventory {
		d := ix.byNumber[entry.Number]
		if d == nil {
			d = &Dedicated{Number: entry.Number}
		}
		joined, wrong := ix.join(*d, entry)
		ix.wrong[entry.Number] = wrong
		ix.add(&joined)
	}
	for _, d := range ix.byNumber {
		if d.Name != "" {
			ix.byName[d.Name] = append(ix.byName[d.Name], d)
		}
	}
	return ix
}

func (ix *dedicatedIndex) add(d *Dedicated) {
	ix.byNumber[d.Number] = d
	for _, a := range append([]netip.Addr{d.IPv4}, d.Addresses...) {
		if a.IsValid() {
			ix.byAddr[a] = d
		}
	}
	if d.IPv6.IsValid() {
		ix.byPrefix[d.IPv6.Masked()] = d
	}
}

// join adds to a server what only its entry in the inventory says, and tells where
// the two contradict each other.
func (ix *dedicatedIndex) join(d, entry Dedicated) (joined Dedicated, wrong []string) {
	field := func(what string, of *string, said string) {
		switch {
		case *of == "":
			*of = said
		case said != "" && said != *of:
			wrong = append(wrong, fmt.Sprintf("%s %q is %q at Robot", what, said, *of))
		}
	}
	field("name", &d.Name, entry.Name)
	field("type", &d.Type, entry.Type)
	field("zone", &d.Zone, entry.Zone)
	field("region", &d.Region, entry.Region)
	d.Addresses = slices.Clone(d.Addresses)
	for _, a := range entry.Addresses {
		owner := ix.owner(a)
		switch {
		case owner == nil:
			d.Addresses = append(d.Addresses, a)
		case owner.Number != d.Number:
			wrong = append(wrong, fmt.Sprintf("address %s is dedicated server %d's", a, owner.Number))
		}
	}
	return d, wrong
}

// owner is the server that has the address; nil: none that is known.
func (ix *dedicatedIndex) owner(a netip.Addr) *Dedicated {
	if d := ix.byAddr[a]; d != nil {
		return d
	}
	if !a.Is6() {
		return nil
	}
	return ix.byPrefix[netip.PrefixFrom(a, ownBits).Masked()]
}

// ownBits is the length of the prefix that the provider routes to each server.
const ownBits = 64

// candidates are the servers that have the Node's name or an address that its
// kubelet reported, by number.
func (ix *dedicatedIndex) candidates(node *corev1.Node) []*Dedicated {
	found := slices.Clone(ix.byName[node.Name])
	for _, a := range slices.Concat(kube.InternalIPs(node), kube.ProvidedIPs(node)) {
		if d := ix.owner(a); d != nil {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b *Dedicated) int { return cmp.Compare(a.Number, b.Number) })
	return slices.Compact(found)
}

// doubt returns an error unless the list is of an account that the cluster's
// dedicated servers belong to: one of a Node in it proves that.
func (ix *dedicatedIndex) doubt(nodes []*corev1.Node) error {
	absent := 0
	for _, node := range nodes {
		number, err := kube.ParseDedicatedID(node.Spec.ProviderID)
		switch {
		case err != nil:
		case slices.ContainsFunc(ix.listed, func(d Dedicated) bool { return d.Number == number }):
			return nil
		default:
			absent++
		}
	}
	return fmt.Errorf("the account's list shows the dedicated server of no Node, and %d have one; "+
		"check that the Robot user belongs to this cluster's account, and delete the Node by hand if its server really is gone", absent)
}

// isOf reports whether the index is of this very list.
func (ix *dedicatedIndex) isOf(listed []Dedicated) bool {
	return len(ix.listed) == len(listed) && (len(listed) == 0 || &ix.listed[0] == &listed[0])
}
