package hetzner_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// A deletion that the API does not accept in time is not retried, and a gateway whose old route
// could not be deleted in time is not changed. One that is accepted in time may take longer.
func TestNothingIsDeletedAfterTheDeadline(t *testing.T) {
	const patience = 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		sim, c, id := project(t, hcloudsim.Options{ActionTime: 2 * patience})
		table, err := c.Network(t.Context(), fmt.Sprint(id))
		if err != nil {
			t.Fatal(err)
		}
		one, two := entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.1.0/24", "10.0.0.3")
		if err := table.Add(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if err := sim.Inject(hcloudsim.Fault{Match: "POST /networks/{rest...}", Code: "locked", Times: -1}); err != nil {
			t.Fatal(err)
		}
		for what, change := range map[string]func(time.Time) error{
			"a deletion":    func(by time.Time) error { return table.Delete(t.Context(), one, by) },
			"a replacement": func(by time.Time) error { return table.Replace(t.Context(), one, two, by) },
		} {
			began := time.Now()
			if err := change(began.Add(patience)); err == nil {
				t.Errorf("%s was accepted", what)
			}
			if took := time.Since(began); took > patience {
				t.Errorf("%s took %s, want at most %s", what, took, patience)
			}
			sim.ResetRequests()
			if err := change(time.Now()); err == nil || len(sim.Requests()) > 0 {
				t.Errorf("%s was asked for %d times when it was too late, %v", what, len(sim.Requests()), err)
			}
		}
		sim.ClearFaults()
		if err := table.Delete(t.Context(), one, time.Now().Add(patience)); err != nil {
			t.Errorf("accepted in time, and not over in time: %v", err)
		}
		expect(t, table)
	})
}
