// Package run runs the commands of the documents: each kubectl, underlayctl and
// curl line of every page, in the order of the page, through a shell, with the
// programs themselves. They find a real API server with the shipped manifests,
// underlay-ccm at work on the simulated cloud, Nodes, and pods that are ready.
//
// What can't be run here, or not to a good end, is in a table with its reason
// (exceptions); a row that no document needs any more fails. A shell of this
// package must never reach this machine: its path holds a few programs that
// read, and everything else is not found.
package run
