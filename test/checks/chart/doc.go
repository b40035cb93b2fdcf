// Package chart renders deploy/chart with Helm's own engine: the plain manifests in deploy/ are what
// comes out, and what comes out of every other value is in testdata; both are rendered anew by "make
// manifests". Mistakes in values are told with their remedy, and the chart refuses nothing that the
// programs, whose own code is asked, would take. It is a module of its own, because Helm's libraries
// bring much along that nothing else needs.
//
// It must never need a cluster or the helm program: what an API server says of the same files is for
// test/checks/deploy. Run it with -count=1, as "make chart" does: the chart lies outside this module,
// and go test, which remembers results, doesn't notice when it changes.
package chart
