// Package snapshots makes survey.Snapshots of clusters that exist nowhere: of any size,
// healthy, or with one trouble of each kind that the page of underlayctl shows.
//
// It is for tests of what is made of a look. It must never be taken for what a cluster
// does: nothing in it was seen.
package snapshots
