package main

// moverMutants are those of addresses that an API leads to nodes.
func moverMutants() []mutant {
	const controller, robot = "addresses/controller/routing.go", "internal/dedicated/failovers_route.go"
	return []mutant{
		{
			name: "every move is urgent", file: controller,
			old: "Planned: d.serving[leads]", new: "Planned: false",
			why:   "a drain would spend the moves that are kept for failures",
			tests: "./addresses/controller", run: "^TestMovesOutOfADrainArePlanned$",
		},
		{
			name: "a planned move stays one when its node fails", file: controller,
			old: "waiting := t.to == to &&", new: "waiting := t.to.ProviderID == to.ProviderID &&",
			why:   "traffic would wait as long as the planned move was put off",
			tests: "./addresses/controller", run: "^TestAPlannedMoveBecomesUrgent$",
		},
		{
			name: "any server is the former holder", file: robot,
			old: "former != \"\" && servers[i].Name == former", new: "former != \"\"",
			why:   "an address would be taken from a server that the cluster knows nothing of",
			tests: "./internal/dedicated", run: "^TestAFailoverAddressAtTheFormerHolder$",
		},
	}
}
