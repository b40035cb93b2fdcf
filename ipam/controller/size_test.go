package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/underlay-ccm/underlay/ipam"
)

// Many new Nodes make one batch: one request for each Node, and few for the ledger.
func TestFiveHundredNodesTakeFiveHundredPatchesAndFewRecords(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.inject(func(c call) fault { return fault{delay: 5 * time.Millisecond} })
		p := start(t, api, dualStack(512))
		defer p.stop()
		pass(time.Second)
		for i := range 500 {
			api.create(fmt.Sprint("node-", i))
		}
		pass(time.Minute)
		for name := range api.live() {
			if got := api.podCIDRs(name); len(got) != 2 {
				t.Errorf("Node %s has %v", name, got)
			}
		}
		if api.sent() != 500 {
			t.Errorf("%d PATCH requests for 500 Nodes", api.sent())
		}
		if n := api.count("PUT configmaps") - ipam.Shards; n > 3*ipam.Shards {
			t.Errorf("%d writes of the ledger for 500 Nodes at once, want at most three for each ConfigMap", n)
		}
		if n := api.count("GET configmaps"); n > ipam.Shards {
			t.Errorf("the ledger was read %d times, though nobody else wrote it", n)
		}
		wantSound(t, api)
	})
}

// At rest, on a restart and on a takeover, there are no writes.
func TestNothingIsWrittenAtRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(32))
		pass(time.Second)
		for i := range 30 {
			api.add(fmt.Sprint("node-", i), onMachine(fmt.Sprint("cloud://", i)))
		}
		pass(time.Minute)
		written := api.written()
		for range 24 {
			pass(time.Hour)
			api.heartbeat("node-7")
		}
		if n := api.written() - written; n > 0 {
			t.Errorf("%d writes in a day of rest", n)
		}
		p.stop()
		for range 2 {
			p = start(t, api, dualStack(32), notFirst)
			pass(time.Hour)
			p.stop()
		}
		if n := api.written() - written; n > 0 {
			t.Errorf("%d writes by those who took over: %q", n, api.trace())
		}
	})
}

// The ledger is nearly full: Nodes that don't fit get an Event and no reservation, and they get
// prefixes when others are deleted.
func TestAFullLedgerRefusesMoreNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		// Few Nodes with large entries leave space for some ten of the usual size.
		const large = 9
		size := (fileLimit - fileMargin - 800) / large
		for i := range large {
			api.add(fmt.Sprint("large-", i), onMachine(strings.Repeat("x", size)), setPodCIDRs(fmt.Sprintf("192.168.%d.0/24", i)))
		}
		p := start(t, api, dualStack(64))
		defer p.stop()
		pass(time.Second)
		for i := range 40 {
			api.create(fmt.Sprintf("node-%02d", i))
			pass(time.Second)
		}
		pass(time.Minute)
		var without []string
		for i := range 40 {
			if name := fmt.Sprintf("node-%02d", i); len(api.podCIDRs(name)) == 0 {
				without = append(without, name)
			}
		}
		if len(without) < 5 || len(without) > 35 {
			t.Fatalf("%d of 40 Nodes have no podCIDRs, want as many as don't fit\n%q", len(without), p.events.of(""))
		}
		for _, name := range without {
			p.events.want(t, 1, name+" Warning LedgerFull")
			wantCondition(t, api, name, corev1.ConditionFalse, "LedgerFull")
		}
		p.wantMetric(t, rangesMetric, float64(40-len(without)), "v4", "allocated")
		if bytes := stretch(api); bytes > fileLimit {
			t.Errorf("the ledger has %d bytes, more than %d", bytes, fileLimit)
		}
		api.delete("large-0")
		pass(time.Minute)
		for _, name := range without {
			if len(api.podCIDRs(name)) != 2 {
				t.Errorf("Node %s still has nothing, though there is place", name)
			}
		}
		wantSound(t, api)
	})
}

// stretch returns the size of the stored ledger in bytes.
func stretch(api *fakeAPI) (bytes int) {
	for key, value := range api.stored() {
		bytes += len(key) + len(value)
	}
	return bytes
}

// Writes that are rejected again and again, by RBAC or for their size, must be limited.
func TestALedgerThatCantBeWrittenIsNoStorm(t *testing.T) {
	for name, what := range map[string]error{
		"forbidden": apierrors.NewForbidden(configMapResource, ledgerName, errors.New("no right to patch")),
		"too large": apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, ledgerName, nil),
		"conflict":  apierrors.NewConflict(configMapResource, ledgerName, errors.New("always")),
		"down":      apierrors.NewServiceUnavailable("fake: down"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				p := start(t, api, dualStack(4))
				defer p.stop()
				pass(time.Second)
				api.inject(always("PUT configmaps", fault{delay: 10 * time.Millisecond, reply: what}))
				api.create("a")
				api.create("b")
				pass(10 * time.Minute)
				if n := api.ledgerWrites(); n > 100 {
					t.Errorf("%d writes in ten minutes that can't succeed", n)
				}
				if api.sent() > 0 {
					t.Errorf("%d PATCH requests of what isn't recorded", api.sent())
				}
				api.inject(nil)
				pass(time.Minute)
				for _, name := range []string{"a", "b"} {
					if got := api.podCIDRs(name); len(got) != 2 {
						t.Errorf("Node %s has %v when the ledger can be written again", name, got)
					}
				}
				wantSound(t, api)
			})
		})
	}
}
