package ipam

// A scope bounds an exploration.
type scope struct {
	name   string
	starts []setting // of the processes, in the order in which they start
	nodes  []Node
	// served is the number of Nodes, from the first on, that got podCIDRs before the exploration,
	// from a process with the setting in by; past is the number of these that were deleted then.
	served, past int
	by           setting
	// late is the number of Nodes, from the last on, that are created at any time; the others exist
	// from the start.
	late    int
	deletes int // the number of Nodes that may be deleted
	// faults is the number of delayed or lost writes, torn loads, and outdated lists of Nodes.
	faults   int
	relieves int     // the number of times that a process may move entries of the root to a shard
	searches [][]int // the slots of the pools at which a search may begin; nil: the first ones
	hand     string  // podCIDRs that another client may set
	room     int     // the number of Nodes that always fit
	flaw     flaw
}

func pool4Of(prefix string, mask int) PoolConfig {
	return PoolConfig{Name: "v4", Prefix: pfx(prefix), NodeMask: mask}
}

func exploreNodes(uids ...string) (nodes []Node) {
	for _, uid := range uids {
		nodes = append(nodes, Node{Name: uid[:1], UID: uid, ProviderID: "m" + uid[:1]})
	}
	return nodes
}

// exploreScopes are the scopes to explore. They are as small as possible: pools have two or four
// node prefixes, and a block has one or two of them.
func exploreScopes() []*scope {
	two := []PoolConfig{pool4Of("10.0.0.0/23", 24)}
	four := []PoolConfig{pool4Of("10.0.0.0/22", 24)}
	halves := []PoolConfig{pool4Of("10.0.0.0/23", 25)}
	dual := []PoolConfig{four[0], {Name: "v6", Prefix: pfx("fd00::/62"), NodeMask: 64}}
	root, one := setting{two, 0, false}, setting{two, 0, true}
	both := setting{two, 1, true}
	nodes, either := exploreNodes("a1", "b1"), [][]int{{0}, {1}}
	return []*scope{
		{name: "two of one shard", starts: []setting{one, one}, nodes: nodes, room: 2},
		{name: "only back", starts: []setting{both, root}, nodes: exploreNodes("a1", "b1", "c1"), served: 1, by: both, faults: 1},
		{name: "a block around what the root has", starts: []setting{both, both}, nodes: nodes, served: 1, by: root, faults: 1, room: 2},
		{name: "only forth", starts: []setting{one, one}, nodes: nodes, served: 1, by: root, relieves: 1, faults: 2, room: 2},
		{
			name: "root alone", starts: []setting{root, root, root}, nodes: nodes,
			deletes: 1, faults: 2, searches: either, room: 2,
		},
		{
			name: "shards of one node prefix", starts: []setting{one, one, one}, nodes: nodes,
			deletes: 1, faults: 1, searches: either, room: 2,
		},
		{
			name: "shards of two node prefixes", starts: []setting{{four, 1, true}, {four, 1, true}},
			nodes: exploreNodes("a1", "b1", "c1"), deletes: 1, faults: 1, searches: [][]int{{0}, {2}}, room: 4,
		},
		{
			name: "back and forth", starts: []setting{one, root, one}, nodes: nodes,
			deletes: 1, faults: 1, relieves: 1, searches: either, room: 2,
		},
		{
			name: "back and forth with one block", starts: []setting{{four, 2, true}, {four, 2, false}, {four, 2, true}},
			nodes: exploreNodes("a1", "b1", "c1"), served: 1, by: setting{four, 2, true}, deletes: 1, faults: 1, relieves: 1, room: 4,
		},
		{
			name: "a ledger in the root, forth, back and forth", starts: []setting{one, root, one}, nodes: nodes,
			served: 1, by: root, deletes: 1, faults: 1, relieves: 2, searches: either, room: 2,
		},
		{
			name: "two families in blocks that part", starts: []setting{{dual, 1, true}, {dual, 1, true}},
			nodes: exploreNodes("a1", "b1", "c1"), deletes: 1, faults: 1, searches: [][]int{{0, 0}, {0, 1}, {0, 2}, {2, 0}}, room: 4,
		},
		{
			name: "two families, back and forth", starts: []setting{{dual, 1, true}, {dual, 1, false}, {dual, 1, true}}, nodes: nodes,
			deletes: 1, faults: 1, relieves: 1, searches: [][]int{{0, 0}, {0, 2}}, room: 4,
		},
		{
			name: "node prefixes larger than a block", starts: []setting{{halves, 0, true}, one, one}, nodes: exploreNodes("p1", "a1", "b1"),
			served: 1, past: 1, by: setting{halves, 0, true}, deletes: 1, faults: 1, searches: either, room: 2,
		},
		{
			name: "a machine that comes back", starts: []setting{one, root, one}, nodes: exploreNodes("a1", "b1", "a2"), late: 1,
			deletes: 1, faults: 1, searches: either, room: 2,
		},
		{
			name: "podCIDRs set by hand", starts: []setting{one, root, one}, nodes: nodes,
			deletes: 1, faults: 1, searches: either, hand: "10.0.0.0/24",
		},
	}
}
