// Package chart renders deploy/chart with Helm's own engine: the plain manifests
// in deploy/ are what comes out, every option makes objects that decode strictly,
// and mistakes in values are told with their remedy before the programs, whose own
// code is asked, could refuse them. It is a module of its own, because Helm's
// libraries bring much along that nothing else needs.
//
// It must never need a cluster or the helm program. Run it with -count=1, as "make
// chart" does: the chart lies outside this module, and go test, which remembers
// results, doesn't notice when it changes.
package chart
