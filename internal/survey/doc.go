// Package survey looks once at a cluster, its configuration and its cloud, and
// says what is there: who holds which prefixes, which routes stand and whose
// they are, which load balancer serves which Service and how its targets fare.
//
// Collect is the edge: it fills a Snapshot, with reads only (get and list in
// Kubernetes, GET in the cloud). All else is pure: a Snapshot in, rows out, with
// the same packages deciding that decide in the controllers, so that what is
// shown is what they would do.
//
// Watcher keeps a Snapshot up to date while somebody looks: by watching in
// Kubernetes, and by asking the cloud at a pace that leaves its budget to others.
//
// It must never write, and never take what it could not see for what is not
// there: every part that stayed unseen is a Gap with its reason.
package survey
