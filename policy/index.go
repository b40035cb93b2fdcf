package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
)

// Index holds the policies, pods, namespaces and nodes of a cluster, and what it has derived from
// them for the ruleset of one node. Each Set replaces a whole object. It must not be used
// concurrently.
type Index struct {
	node string

	nodes      map[string]Node
	namespaces map[string]map[string]string // labels
	pods       map[Name]*pod
	byNode     map[string]map[Name]*pod
	byNS       map[string]map[Name]*pod
	claims     map[netip.Addr][]*pod // pods that report an address, among them its holder
	policies   map[string]map[Name]*Policy

	// revisions count the changes of a namespace's policies.
	revisions map[string]int
	// peers are those of the latest ruleset, by the names of their sets.
	peers map[string]*peers
}

// pod is a Pod with what was derived from it.
type pod struct {
	Pod
	held []netip.Addr // the reported addresses that the pod really has

	compiled [2]compiled // valid at revision of the policies
	revision int
}

// NewIndex returns an empty index, whose rulesets are those of the named node.
func NewIndex(node string) *Index {
	return &Index{
		node: node, nodes: map[string]Node{}, namespaces: map[string]map[string]string{},
		pods: map[Name]*pod{}, byNode: map[string]map[Name]*pod{}, byNS: map[string]map[Name]*pod{},
		claims: map[netip.Addr][]*pod{}, policies: map[string]map[Name]*Policy{},
		revisions: map[string]int{}, peers: map[string]*peers{},
	}
}

// SetNodes replaces all nodes. Addresses that pods of a removed one report are no longer theirs.
func (x *Index) SetNodes(nodes map[string]Node) {
	affected := map[*pod]bool{}
	for name, pods := range x.byNode {
		if slices.Equal(x.nodes[name].PodCIDRs, nodes[name].PodCIDRs) {
			continue
		}
		for _, p := range pods {
			x.affects(affected, p)
		}
	}
	x.update(affected, func() { x.nodes = nodes })
}

// SetNamespace adds or replaces a namespace.
func (x *Index) SetNamespace(name string, labels map[string]string) {
	if old, known := x.namespaces[name]; known && maps.Equal(old, labels) {
		return
	}
	x.changeNamespace(name, func() { x.namespaces[name] = labels })
}

// DeleteNamespace removes a namespace. Only policies of the namespace itself select its pods then.
func (x *Index) DeleteNamespace(name string) {
	x.changeNamespace(name, func() { delete(x.namespaces, name) })
}

func (x *Index) changeNamespace(name string, change func()) {
	affected := map[*pod]bool{}
	for _, p := range x.byNS[name] {
		affected[p] = true
	}
	x.update(affected, change)
}

// SetPod adds or replaces a pod.
func (x *Index) SetPod(p Pod) {
	if old := x.pods[p.Name]; old == nil || !reflect.DeepEqual(old.Pod, p) {
		x.changePod(p.Name, &pod{Pod: p})
	}
}

// DeletePod removes a pod.
func (x *Index) DeletePod(name Name) { x.changePod(name, nil) }

func (x *Index) changePod(name Name, now *pod) {
	old := x.pods[name]
	affected := map[*pod]bool{}
	for _, p := range []*pod{old, now} {
		if p != nil {
			x.affects(affected, p)
		}
	}
	x.update(affected, func() {
		if old != nil {
			x.unlink(old)
		}
		if now != nil {
			x.link(now)
		}
	})
}

// affects adds a pod, and those that report the same addresses.
func (x *Index) affects(affected map[*pod]bool, p *pod) {
	affected[p] = true
	for _, a := range p.Addresses {
		for _, other := range x.claims[a] {
			affected[other] = true
		}
	}
}

func (x *Index) link(p *pod) {
	x.pods[p.Name] = p
	put(x.byNode, p.Node, p.Name, p)
	put(x.byNS, p.Namespace, p.Name, p)
	for _, a := range p.Addresses {
		x.claims[a] = append(x.claims[a], p)
	}
}

func (x *Index) unlink(p *pod) {
	delete(x.pods, p.Name)
	drop(x.byNode, p.Node, p.Name)
	drop(x.byNS, p.Namespace, p.Name)
	for _, a := range p.Addresses {
		if x.claims[a] = slices.DeleteFunc(x.claims[a], func(q *pod) bool {
			return q == p
		}); len(x.claims[a]) == 0 {
			delete(x.claims, a)
		}
	}
}

// update changes the index, and the elements of the sets for the affected pods.
func (x *Index) update(affected map[*pod]bool, change func()) {
	elements := func(exists bool) {
		for p := range affected {
			for _, g := range x.peers {
				g.change(x, p, exists)
			}
		}
	}
	elements(false)
	change()
	for p := range affected {
		if p.held = nil; x.pods[p.Name] != p {
			continue
		}
		for _, a := range p.Addresses {
			if x.holder(a) == p {
				p.held = append(p.held, a)
			}
		}
	}
	elements(true)
}

// holder returns the pod that has the address, or nil.
func (x *Index) holder(a netip.Addr) *pod {
	var found *pod
	for _, p := range x.claims[a] {
		if p.HostNetwork || p.Ended || !contains(x.nodes[p.Node].PodCIDRs, a) {
			continue
		}
		if found == nil ||
			cmp.Or(cmp.Compare(p.Created, found.Created),
				cmp.Compare(p.Name.String(), found.Name.String())) > 0 {
			found = p
		}
	}
	return found
}

// SetPolicy adds or replaces a policy.
func (x *Index) SetPolicy(p Policy) {
	put(x.policies, p.Namespace, p.Name, &p)
	x.revisions[p.Namespace]++
}

// DeletePolicy removes a policy.
func (x *Index) DeletePolicy(name Name) {
	drop(x.policies, name.Namespace, name)
	x.revisions[name.Namespace]++
}

// Policies returns the number of policies.
func (x *Index) Policies() (n int) {
	for _, all := range x.policies {
		n += len(all)
	}
	return n
}

// selecting returns the policies that isolate a pod in a direction, by name.
func (x *Index) selecting(p *pod, d Direction) []*Policy {
	var found []*Policy
	if p.HostNetwork {
		return nil
	}
	for _, policy := range x.policies[p.Namespace] {
		if policy.isolates(d) && policy.Pods.Matches(p.Labels) {
			found = append(found, policy)
		}
	}
	slices.SortFunc(found, func(a, b *Policy) int { return cmp.Compare(a.Name.Name, b.Name.Name) })
	return found
}

func put[K comparable, V any](index map[string]map[K]V, at string, key K, value V) {
	if index[at] == nil {
		index[at] = map[K]V{}
	}
	index[at][key] = value
}

func drop[K comparable, V any](index map[string]map[K]V, at string, key K) {
	if delete(index[at], key); len(index[at]) == 0 {
		delete(index, at)
	}
}
