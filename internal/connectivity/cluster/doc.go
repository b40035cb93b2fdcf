// Package cluster carries a connectivity plan out: in an own namespace it starts a pod
// on each node that listens, then one that asks, reads the results from the pods'
// logs, and removes everything.
//
// Results come by logs because kubelets serve those at the nodes' own addresses, so
// that they come when the pod network is broken; and because pods/log is a smaller
// right than pods/exec or pods/proxy.
//
// It must never touch what it did not make: everything of it is in Namespace and has
// Label, and a namespace is removed only if it was made here. What a crash left ends by
// itself after ten minutes, and is removed by Clean.
package cluster
