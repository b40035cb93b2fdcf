package main

// webuiMutants are those of the page of underlayctl ui and of what keeps it up to date.
func webuiMutants() []mutant {
	const handlers, watch = "internal/webui/server/handlers.go", "internal/survey/watch.go"
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
			name: "the page spends the project's requests", file: watch,
			old: "max(cloudPause, time.Duration(earlier.cost())*perRequest)", new: "max(cloudPause, perRequest)",
			why:   "the controllers would find none left",
			tests: "./internal/survey", run: "^TestWatcherLeavesTheCloudToOthers$",
		},
		{
			name: "each window looks by itself", file: watch,
			old: "if began.Before(w.next) {", new: "if false {",
			why:   "many windows would keep the API server and the cloud busy",
			tests: "./internal/survey", run: "^TestWatcherSparesASlowAPIServer$",
		},
		{
			name: "a slow API server is not spared", file: watch,
			old: "idleShare*time.Since(began)", new: "time.Since(began)",
			why:   "the page would keep the API server of a large cluster busy",
			tests: "./internal/survey", run: "^TestWatcherSparesASlowAPIServer$",
		},
		{
			name: "the lease of an earlier look is judged", file: watch,
			old: "parts &^= cloudParts", new: "parts &^= cloudParts | PartSetup",
			why:   "doctor would say that nobody leads",
			tests: "./internal/survey", run: "^TestWatcherSeesTheLeaseAsItIs$",
		},
	}
}
