// Package alerts tries the alerts of deploy/alerts on Prometheus' own rule
// engine: each must fire on a cluster that has its trouble, and none on one that
// is well. It is a module of its own, so that the rest needs no Prometheus; as
// the rules are outside of it, go test must be told -count=1.
package alerts
