package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// unchanged fails if a Node's podCIDRs changed.
func unchanged(t *testing.T, api *fakeAPI, before map[string]string) {
	t.Helper()
	for name, want := range before {
		if got := fmt.Sprint(api.podCIDRs(name)); got != want {
			t.Errorf("%s had %s, has %s", name, want, got)
		}
	}
}

func allPodCIDRs(api *fakeAPI) map[string]string {
	all := map[string]string{}
	for name := range api.live() {
		all[name] = fmt.Sprint(api.podCIDRs(name))
	}
	return all
}

// When many Nodes join at once, each takes one request, and the ledger few writes.
func TestManyNodesInShards(t *testing.T) {
	const nodes = 1500 / slowdown
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		var written, writes int
		api.inject(func(c call) fault {
			if c.kind == "PUT configmaps" {
				written += len(c.body)
				writes++
			}
			return fault{delay: 5 * time.Millisecond}
		})
		p := start(t, api, dualStack(2048))
		defer p.stop()
		pass(time.Second)
		for i := range nodes {
			api.add(fmt.Sprint("node-", i), onMachine(fmt.Sprint("hcloud://", 100_000_000+i)))
		}
		pass(time.Minute)
		for name := range api.live() {
			if got := api.podCIDRs(name); len(got) != 2 {
				t.Fatalf("Node %s has %v", name, got)
			}
		}
		t.Logf("%d writes of the ledger, %d bytes a Node", writes, written/nodes)
		if api.sent() != nodes {
			t.Errorf("%d PATCH requests for %d Nodes", api.sent(), nodes)
		}
		if written/nodes > 2000 {
			t.Errorf("%d bytes of the ledger a Node, want at most 2,000", written/nodes)
		}
		wantSound(t, api)

		// Replacing a machine writes some shards, not all.
		pass(time.Hour)
		written = 0
		const replaced = 20
		for i := range replaced {
			api.delete(fmt.Sprint("node-", i*nodes/replaced))
			pass(5 * time.Minute)
			api.create(fmt.Sprint("fresh-", i))
			pass(5 * time.Minute)
			if got := api.podCIDRs(fmt.Sprint("fresh-", i)); len(got) != 2 {
				t.Fatalf("Node fresh-%d has %v", i, got)
			}
		}
		t.Logf("%d bytes of the ledger for each Node that was replaced", written/replaced)
		if written/replaced > 3*30_000 {
			t.Errorf("%d bytes of the ledger for each Node that was replaced, want at most those of three shards", written/replaced)
		}
	})
}

// Writes of several ConfigMaps are in flight at once, and each Node is served when its own is done.
func TestShardsAreWrittenAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(256))
		defer p.stop()
		pass(time.Second)
		api.inject(func(c call) fault {
			if c.kind == "PUT configmaps" {
				return fault{delay: time.Second}
			}
			return fault{}
		})
		for i := range 16 * (writers + 1) { // 16 in a shard
			api.create(fmt.Sprint("node-", i))
		}
		pass(1100 * time.Millisecond)
		served := 0
		for name := range api.live() {
			if len(api.podCIDRs(name)) == 2 {
				served++
			}
		}
		if served < writers || served > 16*writers {
			t.Errorf("%d Nodes are served after one write, want those of the first %d writes", served, writers)
		}
		pass(3 * time.Second)
		for name := range api.live() {
			if got := api.podCIDRs(name); len(got) != 2 {
				t.Errorf("Node %s has %v", name, got)
			}
		}
		wantSound(t, api)
	})
}

// One of several writes in flight fails: the others count, and only that ConfigMap is read again.
func TestOneOfSeveralWritesFails(t *testing.T) {
	for name, what := range map[string]fault{
		"lost": {lose: true}, "not applied": {drop: true}, "refused": {refuse: true}, "late": {late: 2 * time.Second},
		"conflict": {reply: apierrors.NewConflict(configMapResource, "any", errors.New("changed"))},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				p := start(t, api, dualStack(256))
				defer p.stop()
				pass(time.Second)
				fails := true
				api.inject(func(c call) fault {
					switch {
					case c.kind == "PUT configmaps" && c.name == ledgerName+"-1" && fails:
						fails = false
						return what
					case c.kind == "PUT configmaps":
						return fault{delay: 100 * time.Millisecond}
					}
					return fault{}
				})
				before := api.count("GET configmaps")
				for i := range 64 {
					api.create(fmt.Sprint("node-", i))
				}
				pass(time.Minute)
				for name := range api.live() {
					if got := api.podCIDRs(name); len(got) != 2 {
						t.Errorf("Node %s has %v\n%s", name, got, api)
					}
				}
				if n := api.count("GET configmaps") - before; n > 4 {
					t.Errorf("%d reads of the ledger, want only of the ConfigMap that failed", n)
				}
				wantSound(t, api)
			})
		})
	}
}

// A shard that another client deletes or empties is treated as a lost ledger: it is rebuilt after
// the fence, and the Event names it.
func TestALostShard(t *testing.T) {
	for how, lose := range map[string]func(*fakeAPI, string){
		"deleted": (*fakeAPI).deleteObject,
		"emptied": func(api *fakeAPI, name string) {
			api.editObject(name, func(data map[string]string) { clear(data) })
		},
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				p := start(t, api, dualStack(64))
				for i := range 48 {
					api.create(fmt.Sprint("node-", i))
				}
				pass(20 * time.Second)
				p.stop()
				before := allPodCIDRs(api)
				lose(api, ledgerName+"-2")
				p = start(t, api, dualStack(64), notFirst)
				defer p.stop()
				api.create("late")
				pass(fence - time.Second)
				wantPodCIDRs(t, api, "late")
				if got := p.events.of(ledgerName + " Warning LedgerLost"); len(got) != 1 || !strings.Contains(got[0], ledgerName+"-2") {
					t.Errorf("events %q, want one that names the shard", got)
				}
				pass(30 * time.Second)
				if got := api.podCIDRs("late"); len(got) != 2 {
					t.Errorf("Node late has %v after the fence\n%s", got, api)
				}
				unchanged(t, api, before)
				for name := range before {
					if got := api.entries()[name]; got == "" {
						t.Errorf("the ledger has nothing for %s", name)
					}
				}
			})
		})
	}
}

// A quarantine that is recorded in two shards outlives the loss of one of them.
func TestAQuarantineOfTwoShardsOutlivesOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		pools := []Pool{pool("v4", "10.0.0.0/18", 24), pool("v6", "fd00::/56", 64)}
		p := start(t, api, pools, quarantine(10*time.Hour))
		defer p.stop()
		api.create("odd", "10.0.1.0/24", "fd00:0:0:19::/64")
		for i := range 16 {
			api.create(fmt.Sprint("node-", i))
			pass(time.Second)
		}
		pass(time.Minute)
		api.delete("odd")
		pass(time.Minute)
		api.deleteObject(api.objectWith("odd", "10.0.1.0/24"))
		api.delete("node-0")
		pass(time.Minute)
		api.create("again")
		pass(fence + time.Minute)
		for i := range 60 { // more than the pool has
			api.create(fmt.Sprint("more-", i))
		}
		pass(time.Minute)
		served := 0
		for name := range api.live() {
			got := api.podCIDRs(name)
			if len(got) == 2 {
				served++
			}
			if slices.Contains(got, pfx("10.0.1.0/24")) {
				t.Errorf("Node %s has %v, which is in quarantine", name, got)
			}
		}
		if served != 62 {
			t.Errorf("%d Nodes have podCIDRs, want all of the 64 but the two in quarantine", served)
		}
	})
}
