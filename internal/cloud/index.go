package cloud

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// index finds the machines of a list by ID, name and address. A list has either cloud servers or
// dedicated servers.
type index struct {
	list     []Machine
	byID     map[int64]*Machine
	byName   map[string][]*Machine
	byAddr   map[netip.Addr]*Machine   // of cloud servers: addresses in the network
	byPrefix map[netip.Prefix]*Machine // own /64 of dedicated servers
	// owners are the provider IDs of the machines in byAddr.
	owners map[netip.Addr]string
	// attached counts the cloud servers with an address in the network.
	attached int
	// wrong holds the contradictions between the configuration and the list, by ID.
	wrong map[int64][]string
}

// newIndex joins a list and the configured dedicated servers. The list has precedence; the
// configuration adds what it lacks.
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

// join completes a dedicated server by its configured entry, and returns the contradictions.
func (ix *index) join(m, entry Machine) (joined Machine, wrong []string) {
	field := func(what string, of *string, configured string) {
		switch {
		case *of == "":
			*of = configured
		case configured != "" && configured != *of:
			wrong = append(wrong, fmt.Sprintf("%s %q is %q at Robot", what, configured, *of))
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

// isOf reports whether the index is of this list. Lists are immutable, so it compares their memory.
func (ix *index) isOf(list []Machine) bool {
	return len(ix.list) == len(list) && (len(list) == 0 || &ix.list[0] == &list[0])
}

// doubt returns an error unless the list is of the cluster's own project: with a token of
// another project, all servers are missing, which proves nothing. IDs are unique among all
// customers of the provider, so a single server of a Node proves the project.
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

// doubtAccount is doubt for the account of the dedicated servers. Unlike doubt, it returns an
// error if no Node has a dedicated server.
func (ix *index) doubtAccount(nodes []*corev1.Node) error {
	absent, proven := ix.missing(nodes, kube.ParseDedicatedID)
	if proven {
		return nil
	}
	return fmt.Errorf("the account's list shows the dedicated server of no Node, and %d have one; "+
		"check that the Robot user belongs to this cluster's account, "+
		"and delete the Node by hand if its server really is gone", absent)
}

// missing counts the Nodes' machines that the list lacks, unless the list has any of them.
func (ix *index) missing(
	nodes []*corev1.Node, parse func(string) (int64, error),
) (absent int, proven bool) {
	for _, node := range nodes {
		id, err := parse(node.Spec.ProviderID)
		if err != nil {
			continue
		}
		listed := func(m Machine) bool { return m.ID == id }
		if ix.byID[id] != nil && slices.ContainsFunc(ix.list, listed) { // not only configured
			return 0, true
		}
		absent++
	}
	return absent, false
}
