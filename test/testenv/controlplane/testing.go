package controlplane

import (
	"context"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/gobuild"
)

// StartT starts a control plane for a test, which fails at once if that does not work, and stops it
// when the test and its other cleanups are done. After a failed test the folder with the logs
// remains, and its path is printed.
func StartT(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	if options.Progress == nil {
		options.Progress = gobuild.NewLines(func(line string) { t.Log(line) })
	}
	// Not t.Context(): that ends before the cleanups run, which may still need
	// the API server.
	c, err := Start(context.WithoutCancel(t.Context()), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, complaint := range c.deaths() {
			t.Error(complaint)
		}
		if !t.Failed() {
			c.Stop()
			return
		}
		c.halt()
		t.Logf("the control plane's logs are kept in %s", c.Dir())
	})
	return c
}

// deaths are the programs that ended before they were stopped.
func (c *ControlPlane) deaths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []string
	for _, p := range c.running {
		if !c.stopped && p.Ended() {
			found = append(found, strings.TrimSpace(p.Failure(p.Died()).Error()))
		}
	}
	return found
}
