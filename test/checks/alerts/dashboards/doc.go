// Package dashboards describes the dashboards of deploy/dashboards for Grafana: what each
// panel asks Prometheus, and what it shows of the answer. The files are written from here, so
// that every query can be tried where the alerts are.
//
// It must never ask for a metric that no program shows: a panel without data looks like a
// cluster without trouble.
package dashboards
