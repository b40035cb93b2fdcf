package controller_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// Destinations that always fail, however many and old, don't delay a healthy Node's route.
func TestManyFailingDestinationsDelayNoNode(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.table.fail = func(write string) (error, bool) {
			if strings.HasPrefix(write, "add 10.244.1") { // 10.244.10.0/24 and on
				return errBroken, false
			}
			return nil, false
		}
		for i := range 8 {
			name := fmt.Sprint("bad", i)
			w.servers.attach(name, fmt.Sprint("10.0.1.", 2+i))
			w.join(name, fmt.Sprintf("10.244.1%d.0/24", i))
		}
		defer w.start()()
		rest(time.Hour)
		w.servers.attach("young", "10.0.0.2")
		w.join("young", "10.244.2.0/24")
		rest(3 * time.Minute)
		w.expectCondition("young", "False RouteCreated")
		w.expectTable("10.244.2.0/24 via 10.0.0.2")
	})
}

// The only route is of a Node that left while no manager ran. Until the ledger is loaded, the route
// looks like another cluster's, which must not end the controller.
func TestNoRouteCountsAsAnotherClustersBeforeTheLedgerIsKnown(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.servers.attach("left", "10.0.0.9")
		w.servers.attach("fresh", "10.0.0.2")
		w.join("fresh", "10.244.2.0/24")
		w.table.routes = []routes.Route{entry("10.244.9.0/24", "10.0.0.9")}
		began := time.Now()
		left := []kube.Departed{{Name: "left", ProviderID: "id-left", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.9.0/24")}}}
		w.cfg.Departed = func() ([]kube.Departed, bool) {
			if time.Since(began) < 5*time.Second {
				return nil, false
			}
			return left, true
		}
		defer w.start()()
		rest(5 * time.Minute)
		w.expectTable("10.244.2.0/24 via 10.0.0.2")
		w.expectCondition("fresh", "False RouteCreated")
	})
}
