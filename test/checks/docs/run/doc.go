// Package run runs the commands of the documents: each kubectl, underlayctl and curl line of every
// page, in the order of the page, through a shell, with the programs themselves. They use a real
// API server with the shipped manifests, a running underlay-ccm on the simulated cloud, Nodes, and
// pods that are ready.
//
// Commands that can't be run here, or can't succeed, are in a table with the reason (exceptions); a
// row that no document needs any more fails. A shell of this package must never affect this
// machine: its PATH contains a few programs that read, and all others are not found.
package run
