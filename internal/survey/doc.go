// Package survey reads the state of a cluster, its configuration and its cloud, and derives
// reports from it: podCIDRs of Nodes, routes and their owners, load balancers of Services and
// the health of their targets.
//
// Collect does the I/O: it fills a Snapshot by reads only (get and list in Kubernetes, GET in
// the cloud). Everything else is pure and derives rows from a Snapshot. It uses the packages
// that decide in the controllers, so that the rows show the controllers' decisions.
//
// Watcher refreshes a Snapshot while a client polls it, and limits its requests to the cloud,
// whose budget all clients of the project share.
//
// It must never write, and must never treat a part that it could not read as empty: each unread
// part is a Gap with its reason.
package survey
