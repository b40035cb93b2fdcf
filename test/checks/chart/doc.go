// Package chart renders deploy/chart with Helm's own engine: the plain manifests in deploy/ are its
// results, and those of every other value are in testdata; "make manifests" updates both. Mistakes
// in values must be reported with their remedy, and the chart must not reject values that the
// programs, whose own code is run, would accept. It is a module of its own, because Helm's
// libraries have many dependencies that nothing else needs.
//
// It must never need a cluster or the helm program: test/checks/deploy applies the same files to an
// API server. Run it with -count=1, as "make chart" does: the chart is outside of this module, and
// go test, which caches results, doesn't notice when it changes.
package chart
