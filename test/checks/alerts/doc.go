// Package alerts tries the alerts of deploy/alerts on Prometheus' own rule
// engine: each must fire on a cluster that has its trouble, and none on one that
// is well. And the dashboards of deploy/dashboards: each of their queries must find
// something in what programs really showed. It is a module of its own, so that the rest needs no Prometheus; as
// the rules are outside of it, go test must be told -count=1.
package alerts
