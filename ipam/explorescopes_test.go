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
// node prefixes, in one block or one in each.
func exploreScopes() []*scope {
	near := setting{[]PoolConfig{pool4Of("10.0.0.0/23", 24)}}
	apart := setting{[]PoolConfig{pool4Of("10.0.0.0/19", 20)}}
	halves := setting{[]PoolConfig{pool4Of("10.0.0.0/19", 21)}}
	large := setting{[]PoolConfig{pool4Of("10.0.0.0/18", 19)}}
	four := pool4Of("10.0.0.0/18", 20)
	dual := setting{[]PoolConfig{four, {Name: "v6", Prefix: pfx("fd00::/58"), NodeMask: 60}}}
	nodes, either := exploreNodes("a1", "b1"), [][]int{{0}, {1}}
	return []*scope{
		{name: "two of one shard", starts: []setting{near, near}, nodes: nodes, room: 2},
		{name: "two of two shards", starts: []setting{apart, apart}, nodes: nodes, room: 2},
		{
			name: "one shard", starts: []setting{near, near, near}, nodes: nodes,
			deletes: 1, faults: 2, searches: either, room: 2,
		},
		{
			name: "two shards", starts: []setting{apart, apart, apart}, nodes: nodes,
			deletes: 1, faults: 2, searches: either, room: 2,
		},
		{
			name: "four shards", starts: []setting{{[]PoolConfig{four}}, {[]PoolConfig{four}}},
			nodes: exploreNodes("a1", "b1", "c1"), deletes: 1, faults: 1, searches: [][]int{{0}, {2}}, room: 4,
		},
		{
			name: "two families in one shard or in two", starts: []setting{dual, dual},
			nodes: exploreNodes("a1", "b1", "c1"), deletes: 1, faults: 1, searches: [][]int{{0, 0}, {0, 1}, {0, 2}, {2, 0}}, room: 4,
		},
		{
			name: "two families, one Node deleted", starts: []setting{dual, dual, dual}, nodes: nodes,
			served: 2, by: dual, past: 1, deletes: 1, faults: 1, searches: [][]int{{0, 0}, {0, 2}}, room: 4,
		},
		{
			name: "a node prefix of two shards", starts: []setting{large, large}, nodes: nodes,
			deletes: 1, faults: 1, searches: either, room: 2,
		},
		{
			name: "pools with other masks", starts: []setting{large, apart, large}, nodes: exploreNodes("p1", "a1", "b1"),
			served: 1, past: 1, by: large, deletes: 1, faults: 1, searches: either, room: 1,
		},
		{
			name: "node prefixes of half the size", starts: []setting{halves, apart, apart}, nodes: exploreNodes("p1", "a1", "b1"),
			served: 1, past: 1, by: halves, deletes: 1, faults: 1, searches: either, room: 2,
		},
		{
			name: "a machine that comes back", starts: []setting{apart, apart, apart}, nodes: exploreNodes("a1", "b1", "a2"), late: 1,
			deletes: 1, faults: 1, searches: either, room: 2,
		},
		{
			name: "podCIDRs set by hand", starts: []setting{apart, apart, apart}, nodes: nodes,
			deletes: 1, faults: 1, searches: either, hand: "10.0.0.0/20",
		},
		{
			name: "podCIDRs of two shards set by hand", starts: []setting{apart, apart}, nodes: nodes,
			served: 1, by: apart, deletes: 1, faults: 1, searches: either, hand: "10.0.0.0/18",
		},
	}
}
