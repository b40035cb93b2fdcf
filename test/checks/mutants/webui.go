package main

// webuiMutants are those of the page of underlayctl ui and of what keeps it up to date.
func webuiMutants() []mutant {
	const handlers, watched = "internal/webui/server/handlers.go", "internal/survey/watched.go"
	return []mutant{
		{
			name: "the page answers to any name", file: handlers,
			old: "case !loopback(r.Host):", new: "case false:",
			why:   "a stranger's page could read it by a name that points to 127.0.0.1",
			tests: "./internal/webui/server", run: "^TestWhoIsAnswered$",
		},
		{
			name: "the page answers other sites", file: handlers,
			old: "case foreign(r):", new: "case false:",
			why:   "another page in the same browser could ask",
			tests: "./internal/webui/server", run: "^TestWhoIsAnswered$",
		},
		{
			name: "the page needs no key", file: handlers,
			old: `base := "/" + s.key + "/"`, new: `base := "/"`,
			why:   "others with an account on the machine could open it",
			tests: "./internal/webui/server", run: "^TestWhoIsAnswered$",
		},
		{
			name: "the page spends the project's requests", file: "internal/survey/pace.go",
			old: "p.credit -= price(cost)", new: "p.credit -= 0",
			why:   "the controllers would find none left",
			tests: "./internal/survey", run: "^TestThePageLeavesTheCloudToOthers$",
		},
		{
			name: "the cloud is asked for nobody", file: "internal/survey/watch.go",
			old: "if attended = came; !attended {", new: "if attended = came; false {",
			why:   "a page that nobody looks at would cost requests",
			tests: "./internal/survey", run: "^TestWatcherFollowsTheCloudWhileSomebodyLooks$",
		},
		{
			name: "heartbeats count as news", file: watched,
			old: "if bears(object) && !same(old, object) {", new: "if bears(object) {",
			why:   "every kubelet's heartbeat would have the cloud asked",
			tests: "./internal/survey", run: "^TestWatcherIgnoresHeartbeats$",
		},
		{
			name: "the lease of an earlier look is judged", file: "internal/survey/watch.go",
			old: "Want{Parts: parts | PartSetup}", new: "Want{Parts: parts}",
			why:   "doctor would say that nobody leads",
			tests: "./internal/survey", run: "^TestWatcherSeesTheLeaseAsItIs$",
		},
		{
			name: "what can't be watched is not looked at", file: watched,
			old: "if informer.HasSynced() && !w.isBroken(part) {\n\t\t\tparts", new: "if informer.HasSynced() {\n\t\t\tparts",
			why:   "whoever may not watch would see the first look for ever",
			tests: "./internal/survey", run: "^TestWatcherThatMayNotWatch$",
		},
	}
}
