package cloud

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// index finds the machines of a list by all that a Node may know of its own. A list has
// cloud servers or dedicated ones.
type index struct {
	list     []Machine
	byID     map[int64]*Machine
	byName   map[string][]*Machine
	byAddr   map[netip.Addr]*Machine   // of cloud servers: addresses in the network
	byPrefix map[netip.Prefix]*Machine // dedicated servers' own /64
	// owners are the provider IDs of the machines that have the addresses of byAddr.
	owners map[netip.Addr]string
	// attached is how many cloud servers have an address in the network.
	attached int
	// wrong is what the configuration says against the list, by ID.
	wrong map[int64][]string
}

// newIndex joins a list and the dedicated servers of the configuration. The list is right
// wherever it says something, and the configuration adds the rest.
func newIndex(list, configured []Machine) *index {
	ix := &index{
		list:     list,
		byID:     make(map[int64]*Machine, len(list)),
		byName:   make(map[string][]*Machine, len(list)),
		byAddr:   make(map[netip.Addr]*Machine, len(list)),
		byPrefix: map[netip.Prefix]*Machine{},
		owners:   make(map[netip.Addr]string, len(list)),
		wrong:    map[int64][]string{},
	}
	for i := range list {
		ix.add(&list[i])
	}
	for _, entry := range configured {
		m := ix.byID[entry.ID]
		if m == nil {
			m = &Machine{Dedicated: true, ID: entry.ID}
		}
		joined, wrong := ix.join(*m, entry)
		ix.wrong[entry.ID] = wrong
		ix.add(&joined)
	}
	for _, m := range ix.byID {
		ix.byName[m.Name] = append(ix.byName[m.Name], m)
	}
	return ix
}

// add puts a machine in the place of the one with its ID.
func (ix *index) add(m *Machine) {
	ix.byID[m.ID] = m
	if m.PrivateIP.IsValid() {
		ix.attached++
	}
	addresses := append([]netip.Addr{m.PrivateIP}, m.AliasIPs...)
	if m.Dedicated {
		addresses = append([]netip.Addr{m.PublicIPv4}, m.Addresses...)
		if m.PublicIPv6.IsValid() {
			ix.byPrefix[m.PublicIPv6.Masked()] = m
		}
	}
	id := m.ProviderID()
	for _, a := range addresses {
		if a.IsValid() {
			ix.byAddr[a], ix.owners[a] = m, id
		}
	}
}

// join adds to a dedicated server what only its entry in the configuration says, and
// returns where the two contradict each other.
func (ix *index) join(m, entry Machine) (joined Machine, wrong []string) {
	field := func(what string, of *string, said string) {
		switch {
		case *of == "":
			*of = said
		case said != "" && said != *of:
			wrong = append(wrong, fmt.Sprintf("%s %q is %q at Robot", what, said, *of))
		}
	}
	field("name", &m.Name, entry.Name)
	field("type", &m.Type, entry.Type)
	field("zone", &m.Zone, entry.Zone)
	field("region", &m.Region, entry.Region)
	m.Addresses = slices.Clone(m.Addresses)
	for _, a := range entry.Addresses {
		owner := ix.owner(a)
		switch {
		case owner == nil:
			m.Addresses = append(m.Addresses, a)
		case owner.ID != m.ID:
			wrong = append(wrong, fmt.Sprintf("address %s is dedicated server %d's", a, owner.ID))
		}
	}
	return m, wrong
}

// owner is the machine by whose address a Node is found; nil: none that is known.
func (ix *index) owner(a netip.Addr) *Machine {
	if m := ix.byAddr[a]; m != nil {
		return m
	}
	if !a.Is6() {
		return nil
	}
	return ix.byPrefix[netip.PrefixFrom(a, ownBits).Masked()]
}

// ownBits is the length of the prefix that the provider routes to each machine.
const ownBits = 64

// isOf reports whether the index is of this very list: lists don't change, so the
// same memory is the same list.
func (ix *index) isOf(list []Machine) bool {
	return len(ix.list) == len(list) && (len(list) == 0 || &ix.list[0] == &list[0])
}

// doubt returns an error unless the list is of the cluster's own project. A token
// of another project sees none of the Nodes' servers, and that it sees none is
// true and proves nothing. IDs are unique among all customers of the provider, so
// a single server of a Node proves the project.
func (ix *index) doubt(nodes []*corev1.Node) error {
	absent, proven := ix.missing(nodes, kube.ParseProviderID)
	if proven || absent == 0 {
		return nil
	}
	return fmt.Errorf("the servers of %d of %d Nodes are missing from the project; "+
		"check that the token belongs to this cluster's project, "+
		"and delete the Nodes by hand if they really are gone",
		absent, absent)
}

// doubtAccount is doubt about the account of the dedicated servers. That no Node has one
// proves nothing here.
func (ix *index) doubtAccount(nodes []*corev1.Node) error {
	absent, proven := ix.missing(nodes, kube.ParseDedicatedID)
	if proven {
		return nil
	}
	return fmt.Errorf("the account's list shows the dedicated server of no Node, and %d have one; "+
		"check that the Robot user belongs to this cluster's account, "+
		"and delete the Node by hand if its server really is gone", absent)
}

// missing returns how many Nodes' machines the list lacks, or that it has one of them.
func (ix *index) missing(
	nodes []*corev1.Node, parse func(string) (int64, error),
) (absent int, proven bool) {
	for _, node := range nodes {
		id, err := parse(node.Spec.ProviderID)
		if err != nil {
			continue
		}
		listed := func(m Machine) bool { return m.ID == id }
		if ix.byID[id] != nil && slices.ContainsFunc(ix.list, listed) { // not in the configuration alone
			return 0, true
		}
		absent++
	}
	return absent, false
}
