// Package connectivity defines the trials between the nodes of a cluster and evaluates their
// results: it builds a plan of trials from nodes and addresses, and a matrix and findings with
// remedies from results. It is pure.
//
// It must never treat a path without a result as open: a node without results is listed with the
// reason. And it must report only observations: a remedy names a place to check, never a claim
// about the cause.
//
// Package probe executes trials inside a pod, package cluster starts such pods.
package connectivity
