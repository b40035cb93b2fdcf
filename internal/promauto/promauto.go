// Package promauto creates the metrics of a subsystem and registers them, as client_golang's
// package of this name does. The programs serve the registries of k8s.io/component-base, for which
// there is none.
package promauto

import (
	"errors"
	"fmt"

	"k8s.io/component-base/metrics"
)

// Registry registers metrics; component-base's registries implement it.
type Registry interface {
	Register(metrics.Registerable) error
}

// Factory creates metrics with names underlay_<subsystem>_<name>, and registers each.
type Factory struct {
	registry  Registry
	subsystem string
	err       error
}

// With returns a Factory for a subsystem.
func With(r Registry, subsystem string) *Factory {
	return &Factory{registry: r, subsystem: subsystem}
}

// Err returns an error if a metric could not be registered.
func (f *Factory) Err() error {
	if f.err == nil {
		return nil
	}
	return fmt.Errorf("registering the metrics underlay_%s_*: %w", f.subsystem, f.err)
}

func (f *Factory) opts(name, help string) *metrics.KubeOpts {
	return &metrics.KubeOpts{Namespace: "underlay", Subsystem: f.subsystem, Name: name, Help: help}
}

func registered[M metrics.Registerable](f *Factory, m M) M {
	f.err = errors.Join(f.err, f.registry.Register(m))
	return m
}

// Gauge creates a gauge without labels.
func (f *Factory) Gauge(name, help string) *metrics.Gauge {
	return registered(f, metrics.NewGauge((*metrics.GaugeOpts)(f.opts(name, help))))
}

// GaugeVec creates a gauge for each combination of the labels' values.
func (f *Factory) GaugeVec(name, help string, labels ...string) *metrics.GaugeVec {
	return registered(f, metrics.NewGaugeVec((*metrics.GaugeOpts)(f.opts(name, help)), labels))
}

// Counter creates a counter without labels.
func (f *Factory) Counter(name, help string) *metrics.Counter {
	return registered(f, metrics.NewCounter((*metrics.CounterOpts)(f.opts(name, help))))
}

// CounterVec creates a counter for each combination of the labels' values.
func (f *Factory) CounterVec(name, help string, labels ...string) *metrics.CounterVec {
	return registered(f, metrics.NewCounterVec((*metrics.CounterOpts)(f.opts(name, help)), labels))
}

func (f *Factory) histogram(name, help string, buckets []float64) *metrics.HistogramOpts {
	return &metrics.HistogramOpts{
		Namespace: "underlay", Subsystem: f.subsystem, Name: name, Help: help, Buckets: buckets,
	}
}

// Histogram creates a histogram without labels.
func (f *Factory) Histogram(name, help string, buckets []float64) *metrics.Histogram {
	return registered(f, metrics.NewHistogram(f.histogram(name, help, buckets)))
}

// HistogramVec creates a histogram for each combination of the labels' values.
func (f *Factory) HistogramVec(
	name, help string, buckets []float64, labels ...string,
) *metrics.HistogramVec {
	return registered(f, metrics.NewHistogramVec(f.histogram(name, help, buckets), labels))
}
