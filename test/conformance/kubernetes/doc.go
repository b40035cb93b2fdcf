//go:build linux

// Command kubernetes runs Kubernetes' own end-to-end specs against clusters that are installed as
// the examples say, on machines in namespaces, and writes docs/reference/conformance.md: which
// specs passed, which didn't, and why.
//
// It chooses upstream's sig-network conformance specs and those of the features that a cloud
// provider and a network are held to: load balancers, dual-stack and NetworkPolicy; on metal also
// those of no feature. Those of load balancers run on metal once for each choice of families. Every
// spec runs in a process of its own, some at a time and serial ones alone, from a host outside of
// the cluster, from where load balancers are reached as users reach them.
//
// A result is never the program's own word: it is what upstream's report says, or what underlay-ccm
// has said at a Service that asks for what load balancers can't do. Such a spec is ended, because
// it would wait for a quarter of an hour or pass by chance. What failed needs a reason in
// reasons.go, and a reason that explains nothing any more is an error like a failure that has none.
//
// What became of every spec is recorded in results.json, of which the page is made.
//
// It takes root, and leaves nothing else behind.
package main
