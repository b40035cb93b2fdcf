// Package alerts tests the alerts of deploy/alerts with Prometheus' own rule engine: each must fire
// on a cluster that has its trouble, and none on a healthy one. It also tests the dashboards of
// deploy/dashboards: each of their queries must find series in recorded metrics of the programs. It
// is a module of its own, so that the main module needs no Prometheus; as the rules are outside of
// it, run go test with -count=1.
package alerts
