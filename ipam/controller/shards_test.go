package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/underlay-ccm/underlay/ipam"
)

func spreading(after, blockBits int) setting {
	return func(c *Config) { c.Shards = Shards{After: after, BlockBits: blockBits} }
}

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

// When many Nodes join at once, each takes one request, and few bytes of the ledger are written
// beside the new entries.
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
		p := start(t, api, dualStack(2048), spreading(128/slowdown, 7))
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
		t.Logf("%d shards, %d writes of the ledger, %d bytes a Node", len(api.shards()), writes, written/nodes)
		if api.sent() != nodes {
			t.Errorf("%d PATCH requests for %d Nodes", api.sent(), nodes)
		}
		if written/nodes > 2000 {
			t.Errorf("%d bytes of the ledger a Node, want at most 2,000", written/nodes)
		}
		if shards := len(api.shards()); shards < nodes/128-2 || shards > nodes/128+1 {
			t.Errorf("%d shards of 128 Nodes for %d Nodes", shards, nodes)
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

// From start to start, the ledger is spread over shards and gathered in one ConfigMap again: no
// podCIDRs change, and no Node is kept waiting.
func TestShardsAreTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		serve := func(name string, settings ...setting) {
			t.Helper()
			p := start(t, api, dualStack(64), append(settings, notFirst)...)
			defer p.stop()
			api.create(name)
			pass(20 * time.Second)
			if got := api.podCIDRs(name); len(got) != 2 {
				t.Fatalf("Node %s has %v\n%s", name, got, api)
			}
			p.events.want(t, 0, ledgerName)
			wantSound(t, api)
		}
		p := start(t, api, dualStack(64))
		for i := range 20 {
			api.create(fmt.Sprint("node-", i))
		}
		pass(time.Second)
		p.stop()
		before := allPodCIDRs(api)
		for round := range 2 {
			serve(fmt.Sprint("spread-", round), spreading(4, 2))
			if got := ipam.Listed(api.stored()); len(got) < 4 {
				t.Errorf("shards %v for 21 Nodes, four a shard", got)
			}
			serve(fmt.Sprint("gathered-", round))
			for key, text := range api.stored() {
				if strings.HasPrefix(key, "_shard") || strings.Contains(text, "turn=") {
					t.Errorf("an older version would not understand %q: %q", key, text)
				}
			}
			for name := range before {
				if got := entry(t, api, name); !slices.Equal(got.Prefixes, api.podCIDRs(name)) {
					t.Errorf("the root has %v for %s, which has %v", got, name, api.podCIDRs(name))
				}
			}
			unchanged(t, api, before)
			maps.Copy(before, allPodCIDRs(api))
		}
	})
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
				p := start(t, api, dualStack(64), spreading(4, 2))
				for i := range 12 {
					api.create(fmt.Sprint("node-", i))
				}
				pass(20 * time.Second)
				p.stop()
				before := allPodCIDRs(api)
				lose(api, ledgerName+"-2")
				p = start(t, api, dualStack(64), spreading(4, 2), notFirst)
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

// A cluster that doesn't fit into one ConfigMap is taken over into shards.
func TestATakeoverIntoShards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		for i := range 6 { // few Nodes with large entries
			api.add(fmt.Sprint("old-", i), onMachine(strings.Repeat("x", storeLimit/5)),
				setPodCIDRs(fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("fd00:0:0:%d::/64", i)))
		}
		p := start(t, api, dualStack(8), spreading(1, 1), notFirst, quarantine(time.Minute))
		defer p.stop()
		pass(fence + time.Second)
		api.create("new")
		pass(time.Minute)
		wantPodCIDRs(t, api, "new", "10.0.6.0/24", "fd00:0:0:6::/64")
		p.events.want(t, 0, ledgerName+" Warning LedgerFull")
		wantSound(t, api)
	})
}

// A shard gets another block while Nodes of its other blocks wait for their turn.
func TestNobodyIsForgottenWhenAShardGetsAnotherBlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.inject(func(c call) fault {
			if c.kind == "PATCH nodes" {
				return fault{delay: 2 * time.Second}
			}
			return fault{delay: 5 * time.Millisecond}
		})
		pools := []Pool{forLabel(pool("a", "10.0.0.0/18", 24), "p=a"), forLabel(pool("b", "10.1.0.0/18", 24), "p=b")}
		p := start(t, api, pools, spreading(1, 7))
		defer p.stop()
		api.add("seed", withLabel("p", "a"))
		pass(10 * time.Second)
		for i := range 60 {
			api.add(fmt.Sprint("a-", i), withLabel("p", "a"))
		}
		pass(time.Second)
		api.add("b-0", withLabel("p", "b"))
		pass(20 * time.Second)
		for name := range api.live() {
			if len(api.podCIDRs(name)) == 0 {
				t.Errorf("Node %s has no podCIDRs", name)
			}
		}
		if shards := api.shards(); len(shards) != 1 {
			t.Errorf("shards %v, want both pools in one", shards)
		}
		wantSound(t, api)
	})
}

// Further ConfigMaps become forbidden: the existing one is still used.
func TestAForbiddenShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(64))
		for i := range 20 {
			api.create(fmt.Sprint("node-", i))
		}
		pass(10 * time.Second)
		p.stop()
		forbidden := apierrors.NewForbidden(configMapResource, ledgerName+"-1", errors.New("exceeded quota"))
		api.inject(always("POST configmaps", fault{reply: forbidden}))
		p = start(t, api, dualStack(64), spreading(4, 2), notFirst)
		defer p.stop()
		api.create("late")
		pass(time.Minute)
		if got := api.podCIDRs("late"); len(got) != 2 {
			t.Errorf("Node late has %v\n%s", got, api)
		}
		p.events.want(t, 1, ledgerName+" Warning LedgerNotWritable")
	})
}

// A quarantine that is recorded in two shards outlives the loss of one of them.
func TestAQuarantineOfTwoShardsOutlivesOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		pools := []Pool{pool("v4", "10.0.0.0/18", 24), pool("v6", "fd00::/56", 64)}
		p := start(t, api, pools, spreading(2, 2), quarantine(10*time.Hour))
		defer p.stop()
		api.create("odd", "10.0.1.0/24", "fd00:0:0:9::/64")
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
