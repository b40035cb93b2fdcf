// Package snapshots builds a survey.Snapshot of fictional clusters: of any size, healthy, or with
// one problem of each kind that the page of underlayctl shows.
//
// It is for tests of code that evaluates snapshots. It must never be taken for evidence of a
// cluster's behavior: nothing in it was observed.
package snapshots
