package robot

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
)

// After a pause one request is sent until its result is known, or its caller gives it up.
func TestOneRequestAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outage{gone: metrics.NewGauge(&metrics.GaugeOpts{})}
		_ = o.failed(io.EOF)
		if o.admit() == nil {
			t.Error("a request is sent during the pause")
		}
		time.Sleep(2 * shortestBackoff)
		if err := o.admit(); err != nil {
			t.Errorf("after the pause: %v", err)
		}
		if o.admit() == nil {
			t.Error("a second one is sent while the first has no result")
		}
		o.unknown()
		if err := o.admit(); err != nil {
			t.Errorf("after one that was given up: %v", err)
		}
		o.succeeded()
		if err := o.admit(); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	})
}
