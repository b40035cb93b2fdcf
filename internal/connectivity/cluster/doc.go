// Package cluster executes a connectivity plan. In its own namespace it starts a listening pod
// and then a client pod on each node, reads the results from the pods' logs, and removes all
// objects.
//
// Results are read from logs because kubelets serve these at the nodes' addresses, which works
// even if the pod network is broken, and because pods/log is a smaller permission than
// pods/exec.
//
// It must never modify objects that it did not create: all its objects are in Namespace and have
// Label, and it deletes a namespace only if it created it. Pods left by a crash end after ten
// minutes, and Clean removes them.
package cluster
