package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/ipam"
)

// Each second a Node is replaced: each takes little more than one write of the ledger, that of its
// reservation. The release of the old Node, the provider ID of the new one and the end of a
// quarantine are batched, with it or with each other.
func TestAReplacedNodeTakesOneWriteOfTheLedger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const nodes, replaced = 100, 120
		api := newFakeAPI()
		p := start(t, api, dualStack(256), quarantine(30*time.Second))
		defer p.stop()
		pass(time.Second)
		for i := range nodes {
			api.add(fmt.Sprint("node-", i), onMachine(fmt.Sprint("cloud://", i)))
		}
		pass(time.Minute)
		before := api.ledgerWrites()
		for i := range replaced {
			api.delete(fmt.Sprint("node-", i))
			pass(400 * time.Millisecond)
			api.create(fmt.Sprint("node-", nodes+i))
			pass(100 * time.Millisecond)
			if got := api.podCIDRs(fmt.Sprint("node-", nodes+i)); len(got) != 2 {
				t.Errorf("Node %d has %v after 100 ms", i, got)
			}
			pass(300 * time.Millisecond)
			api.edit(fmt.Sprint("node-", nodes+i), onMachine(fmt.Sprint("cloud://", nodes+i)))
			pass(200 * time.Millisecond)
		}
		writes := api.ledgerWrites() - before
		t.Logf("%d writes for %d replaced Nodes, %d bytes each", writes, replaced, stretch(api))
		if writes > replaced*4/3 {
			t.Errorf("%d writes of the ledger for %d replaced Nodes", writes, replaced)
		}
		pass(time.Minute)
		if got := api.ledgerWrites() - before - writes; got > ipam.Shards {
			t.Errorf("%d more writes for what was left, want at most one of each ConfigMap", got)
		}
		for i := replaced; i < nodes+replaced; i++ {
			name := fmt.Sprint("node-", i)
			if got := entry(t, api, name); got.Node.ProviderID != fmt.Sprint("cloud://", i) || !got.Released.IsZero() {
				t.Errorf("the ledger has %v for %s", got, name)
			}
		}
		if got := len(api.holders()); got != nodes {
			t.Errorf("the ledger has %d Nodes, want %d", got, nodes)
		}
		wantSound(t, api)
	})
}

// In a large cluster, all writes for a replaced Node together are little more than the shard of its
// reservation.
func TestAReplacedNodeOfALargeClusterTakesOneShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const nodes, replaced = 2000 / slowdown, 120
		api := newFakeAPI()
		p := start(t, api, dualStack(8192), quarantine(5*time.Minute))
		defer p.stop()
		pass(time.Second)
		for i := range nodes {
			api.add(fmt.Sprintf("worker-pool-1-%04d", i), onMachine(fmt.Sprint("hcloud://", 100_000_000+i)))
		}
		pass(time.Hour)
		written := 0
		api.inject(func(c call) fault {
			if c.kind == "PUT configmaps" {
				written += len(c.body)
			}
			return fault{}
		})
		for i := range replaced {
			// The Nodes come from all blocks in turn, so that no two in a row are neighbors.
			api.delete(fmt.Sprintf("worker-pool-1-%04d", i*7%nodes))
			pass(400 * time.Millisecond)
			name := fmt.Sprintf("worker-pool-2-%04d", i)
			api.create(name)
			pass(300 * time.Millisecond)
			if got := api.podCIDRs(name); len(got) != 2 {
				t.Fatalf("Node %s has %v", name, got)
			}
			api.edit(name, onMachine(fmt.Sprint("hcloud://", 200_000_000+i)))
			pass(9300 * time.Millisecond)
		}
		pass(time.Hour)
		t.Logf("%d bytes were written for a replaced Node", written/replaced)
		const most = 35_000 // of a shard, half full on average, and its share of later writes
		if written/replaced > most {
			t.Errorf("%d bytes were written for each Node that was replaced, want at most %d", written/replaced, most)
		}
		wantSound(t, api)
	})
}

// A large ledger is written no faster than etcd can sustain, and a single Node doesn't wait.
func TestALargeLedgerIsNotWrittenFasterThanEtcdCanTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		const large = 3
		for i := range large {
			id := make([]byte, 150_000)
			for j := range id {
				id[j] = 'x'
			}
			api.add(fmt.Sprint("large-", i), onMachine(string(id)), setPodCIDRs(fmt.Sprintf("192.168.%d.0/24", i)))
		}
		p := start(t, api, dualStack(256))
		defer p.stop()
		pass(time.Minute)
		written, begin := 0, time.Now()
		api.inject(func(c call) fault {
			if c.kind == "PUT configmaps" {
				written += len(c.body)
			}
			return fault{}
		})
		api.create("single")
		pass(0)
		if got := api.podCIDRs("single"); len(got) != 2 {
			t.Errorf("a single Node has %v at once, want its podCIDRs", got)
		}
		for i := range 3 {
			name := fmt.Sprint("next-", i)
			api.create(name)
			pass(0)
			if got := api.podCIDRs(name); len(got) != 2 {
				t.Errorf("after a rest, %s has %v at once, want its podCIDRs", name, got)
			}
		}
		for i := range 200 {
			api.create(fmt.Sprint("node-", i))
			pass(50 * time.Millisecond)
		}
		pass(time.Second)
		if most := int(time.Since(begin).Seconds()+1)*writeRate + writeBurst; written > most {
			t.Errorf("%d bytes written in %s, want at most %d", written, time.Since(begin), most)
		}
		for i := range 200 {
			if got := api.podCIDRs(fmt.Sprint("node-", i)); len(got) != 2 {
				t.Errorf("Node %d has %v", i, got)
			}
		}
		wantSound(t, api)
	})
}
