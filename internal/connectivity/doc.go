// Package connectivity says what is tried between the nodes of a cluster, and what
// the results mean: a plan of trials from nodes and addresses, a matrix and findings
// with remedies from results. It is pure: values in, values out.
//
// It must never take what was not tried for open: a node without results is named
// with the reason. And it must name only what was seen: a remedy is a place to look,
// never a claim about the cause.
//
// package probe carries trials out inside a pod, package cluster starts such pods.
package connectivity
