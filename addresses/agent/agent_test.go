package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
)

// A mover gets the whole ledger, after any change.
func TestTheLedgerIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3", "192.0.2.2 b 1", "198.51.100.1 c 1"))
		m.start()
		defer m.stop()
		first := "one hold [{192.0.2.1 3 false}] elsewhere [192.0.2.2] doubt false"
		// The agent receives the ledger, and then that it is complete: it may process both at once.
		start := m.mover.log()
		if start[0] != " hold [] elsewhere [] doubt true" || start[len(start)-1] != first {
			t.Errorf("the mover was told %q, want nothing at first and then %q", start, first)
		}
		m.api.put("one", ledgerText("192.0.2.1 a,b 0", "192.0.2.2 a 2 held"))
		m.after(0)
		both := "one hold [{192.0.2.1 0 false} {192.0.2.2 2 false} held] elsewhere [] doubt false"
		m.expect(append(start, both)...)

		// With an invalid ledger the agent keeps its addresses, and is in doubt.
		m.api.put("one", `{"version":2}`)
		m.after(time.Minute)
		doubtful := strings.Replace(both, "doubt false", "doubt true", 1)
		m.expect(append(start, both, doubtful)...)
		m.api.cut()
		m.after(20 * time.Minute)
		m.expect(append(start, both, doubtful)...)
		m.api.put("one", "") // a client has emptied it
		m.after(time.Minute)
		m.expect(append(start, both, doubtful, both)...)
		m.api.remove()
		m.after(time.Minute)
		m.expect(append(start, both, doubtful, both)...)
		m.api.put("two", ledgerText("192.0.2.1 b 1"))
		m.after(0)
		m.expect(append(start, both, doubtful, both, "two hold [] elsewhere [192.0.2.1] doubt false")...)
	})
}

// The end of a watch causes no doubt if the next one begins. An unreachable API server causes doubt
// within a second, and the last ledger stays in use.
func TestDoubt(t *testing.T) {
	const certain, doubtful = "one hold [{192.0.2.1 3 false}] elsewhere [] doubt false", "one hold [{192.0.2.1 3 false}] elsewhere [] doubt true"
	for name, down := range map[string]func(*fakeAPI, bool){
		"refused":    func(f *fakeAPI, now bool) { f.set(now, false) },
		"unanswered": func(f *fakeAPI, now bool) { f.set(false, now) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				m.api.put("one", ledgerText("192.0.2.1 a 3"))
				m.start()
				defer m.stop()
				start := m.mover.log()
				for range 3 {
					m.after(20 * time.Second)
					m.api.cut()
				}
				m.after(time.Second)
				m.expect(start...)

				down(m.api, true)
				m.api.cut()
				m.after(replyTimeout + time.Millisecond)
				m.expect(append(start, doubtful)...)
				m.after(time.Hour)
				down(m.api, false)
				m.after(retryAtMost + replyTimeout)
				m.expect(append(start, doubtful, certain)...)

				// Changes since are set together with the end of the doubt, not after it.
				down(m.api, true)
				m.api.cut()
				m.after(2 * time.Second)
				m.api.put("one", ledgerText("192.0.2.1 b 4"))
				down(m.api, false)
				m.after(retryAtMost + replyTimeout)
				if got := m.mover.log(); slices.Contains(got[len(start)+3:], certain) || got[len(got)-1] != "one hold [] elsewhere [192.0.2.1] doubt false" {
					t.Errorf("an older ledger was called certain:\n%s", strings.Join(got, "\n"))
				}
			})
		})
	}
}

// Regular lists would burden the API server: each watch begins with one list, and there are no
// others.
func TestQuietWhileNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3"))
		m.start()
		defer m.stop()
		m.after(time.Hour)
		if m.api.lists != 1 || len(m.api.notified()) != 1 {
			t.Errorf("in an hour: %d lists, reports %q", m.api.lists, m.api.notified())
		}
	})
}

// An agent that restarts continues to hold its addresses, also while the API server is unreachable.
// An address that it could not hold isn't restored.
func TestStartedAgainWithoutTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3", "192.0.2.2 a 5", "192.0.2.3 b 1"))
		m.start()
		m.mover.refuse("192.0.2.2", addresses.InUse)
		m.agent.look()
		m.after(time.Second)
		m.stop()

		m.api.set(true, false)
		m.start()
		m.expect("one hold [{192.0.2.1 3 true} {192.0.2.2 5 false}] elsewhere [192.0.2.3] doubt true")
		m.stop() // and crashes before it has done anything
		m.start()
		m.expect("one hold [{192.0.2.1 3 true} {192.0.2.2 5 true}] elsewhere [192.0.2.3] doubt true") // the fake mover held it
		m.api.put("one", ledgerText("192.0.2.1 a 4"))
		m.api.set(false, false)
		m.after(3 * time.Second)
		if got := m.mover.log(); got[len(got)-1] != "one hold [{192.0.2.1 4 false}] elsewhere [] doubt false" {
			t.Errorf("a later epoch is not what was held: %q", got)
		}
		m.stop()

		if err := os.WriteFile(m.state, []byte("{dam"), 0o600); err != nil {
			t.Fatal(err)
		}
		m.api.set(true, false)
		m.start()
		m.expect(" hold [] elsewhere [] doubt true")
		m.stop()
	})
}

func TestTheStateIsOfOneNode(t *testing.T) {
	path := t.TempDir() + "/" + StateFile
	ledger, err := addresses.ParseLedger([]byte(ledgerText("192.0.2.1 a 3")))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Knowledge{Name: "a", Ledger: ledger, Cluster: "one"})
	if err == nil {
		err = replace(path, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	for node, cluster := range map[string]string{"a": "one", "b": ""} {
		if k, err := Load(path, node); err != nil || k.Cluster != cluster {
			t.Errorf("%s: %+v, %v", node, k, err)
		}
	}
	if left, err := os.ReadDir(t.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The state file has the ledger as the API server does, so that agents of other builds resume too.
func TestTheStateOfAnEarlierAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), StateFile)
	text := fmt.Sprintf(`{"name":"a","cluster":"one","ledger":%s}`, ledgerText("192.0.2.1 a 3"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := Load(path, "a")
	if err != nil || len(k.Ledger.Entries()) != 1 || k.Ledger.Entries()[0].Holder != "a" {
		t.Errorf("%+v, %v", k, err)
	}
	again, err := json.Marshal(k)
	if err != nil || !strings.Contains(string(again), `"ledger":{`) {
		t.Errorf("%s, %v", again, err)
	}
}

// The packet filter gets the addresses that the node holds or is to hold.
func TestHeldAddressesArePassedToTheFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.2 a 1", "2001:db8::1 a 1"))
		m.start()
		defer m.stop()
		changes := 0
		go func() {
			for t.Context().Err() == nil {
				select {
				case <-t.Context().Done():
				case <-m.agent.Held.Changed():
					changes++
				}
			}
		}()
		m.after(0)
		want := []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")}
		if got := m.agent.Held.All(); !slices.Equal(got, want) || changes != 1 {
			t.Errorf("held: %v, %d changes", got, changes)
		}
		// Packets to the address may still arrive, whichever host holds it.
		m.mover.refuse(want[1].String(), addresses.InUse)
		m.agent.look()
		m.after(time.Second)
		if got := m.agent.Held.All(); !slices.Equal(got, want) || changes != 1 {
			t.Errorf("held or refused: %v, %d changes", got, changes)
		}
		m.api.put("one", ledgerText("192.0.2.2 a 1"))
		m.after(0)
		if got := m.agent.Held.All(); !slices.Equal(got, want[:1]) || changes != 2 {
			t.Errorf("held: %v, %d changes", got, changes)
		}
	})
}

// No mover gets an address of a pool that the agent's configuration lacks; the report names it.
func TestAnAddressOfNoPoolIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("203.0.113.1 a 1", "203.0.113.2 b 1"))
		m.start()
		defer m.stop()
		m.after(time.Second)
		if r := m.report(); len(r.Refused) != 1 || r.Refused[0].Reason != addresses.Failed ||
			len(r.Held) != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// An agent without a pool that is in use is not ready, which stops a rollout of its configuration;
// one that lacks a pool that was added later has the old configuration, and stays ready.
func TestAPoolInUseIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("203.0.113.1 b 1", "192.0.2.1 a 1"))
		m.start()
		defer m.stop()
		if err := m.agent.Ready(); err == nil || !strings.Contains(err.Error(), "203.0.113.1, which the Service default/s uses") {
			t.Errorf("%v", err)
		}
		m.api.put("one", ledgerText("192.0.2.1 a 1", "203.0.113.2 b 1"))
		m.after(0)
		if err := m.agent.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// The machine is now in another cluster, under the same name and without a ledger, and restores no
// addresses.
func TestAddressesOfAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3"))
		m.start()
		m.after(time.Second)
		m.stop()
		found, _, _ := m.api.nodes.Informer().GetStore().GetByKey("a")
		self := found.(*corev1.Node).DeepCopy()
		self.UID = "another"
		if err := m.api.nodes.Informer().GetStore().Update(self); err != nil {
			t.Fatal(err)
		}
		m.api.remove()
		m.start()
		defer m.stop()
		m.after(time.Minute)
		if log := m.mover.log(); !strings.HasPrefix(log[len(log)-1], " hold [] ") {
			t.Errorf("the mover was told %q", log)
		}
		m.api.put("two", ledgerText("192.0.2.1 a 1"))
		m.after(time.Second)
		if log := m.mover.log(); log[len(log)-1] != "two hold [{192.0.2.1 1 false}] elsewhere [] doubt false" {
			t.Errorf("the mover was told %q", log)
		}
	})
}

// An address of a Node itself is not held for a Service.
func TestAddressesOfNodesAreNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.node("b", "192.0.2.2", true)
		m.node("a", "192.0.2.1", true)
		m.api.put("one", ledgerText("192.0.2.1 a 1", "192.0.2.2 a 2", "192.0.2.3 a 2"))
		m.start()
		defer m.stop()
		m.after(time.Second)
		if log := m.mover.log(); log[len(log)-1] != "one hold [{192.0.2.3 2 false}] elsewhere [] doubt false" {
			t.Errorf("the mover was told %q", log)
		}
		r := m.report()
		if len(r.Held) != 1 || len(r.Refused) != 2 || r.Refused[1].Reason != addresses.InUse || !strings.Contains(r.Refused[1].Text, "Node b") {
			t.Errorf("%+v", r)
		}
		m.node("c", "192.0.2.3", true) // even if a Node reports it
		m.agent.look()
		m.after(time.Second)
		if r := m.report(); len(r.Held) != 1 {
			t.Errorf("%+v", r)
		}
	})
}

func TestFriends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
		kernel := &fakeNeighbors{known: map[netip.Addr]net.HardwareAddr{}}
		f := NewFriends(kernel)
		b, c := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
		f.set([]netip.Addr{b, c})
		kernel.known[b], kernel.known[netip.MustParseAddr("10.0.0.9")] = mac(2), mac(9)
		if !f.Friend(mac(2)) || f.Friend(mac(9)) {
			t.Error("b is the friend, 10.0.0.9 is none")
		}
		time.Sleep(time.Second)
		f.Friend(mac(9))
		looks := kernel.looks
		for range 1000 {
			f.Friend(mac(9))
		}
		if kernel.looks != looks {
			t.Errorf("a stranger costs %d looks at the kernel's table", kernel.looks-looks)
		}
		delete(kernel.known, b)
		time.Sleep(time.Minute)
		if !f.Friend(mac(2)) {
			t.Error("b is forgotten")
		}
		kernel.solicited = nil
		go f.Run(t.Context())
		synctest.Wait()
		if !slices.Equal(slices.Compact(kernel.solicited), []netip.Addr{c}) {
			t.Errorf("asked for %v, want %s alone", kernel.solicited, c)
		}
		f.set([]netip.Addr{c})
		time.Sleep(time.Minute)
		if f.Friend(mac(2)) {
			t.Error("a Node that is gone leaves a friend")
		}
	})
}

// A machine that joins and that the kernel's neighbor table lacks is solicited at once, so that it
// does not count as an external host.
func TestAFriendOfWhomNothingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, mac := netip.MustParseAddr("10.0.0.2"), net.HardwareAddr{2, 0, 0, 0, 0, 2}
		kernel := &fakeNeighbors{
			known: map[netip.Addr]net.HardwareAddr{}, successes: map[netip.Addr]net.HardwareAddr{b: mac},
		}
		f := NewFriends(kernel)
		go f.Run(t.Context())
		synctest.Wait()
		f.set([]netip.Addr{b})
		time.Sleep(friendsWithin)
		if !f.Friend(mac) {
			t.Errorf("it is a stranger, asked for %v", kernel.solicited)
		}
	})
}

// Until the Nodes are observed, only addresses that were held before are taken.
func TestNothingIsTakenBeforeNodesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3"))
		nodes := m.api.nodes.Informer().GetStore()
		all := nodes.List()
		for _, n := range all {
			if err := nodes.Delete(n); err != nil {
				t.Fatal(err)
			}
		}
		m.start()
		defer m.stop()
		if hold := m.mover.want.Hold; len(hold) > 0 {
			t.Errorf("it is to hold %v", hold)
		}
		for _, n := range all {
			if err := nodes.Add(n); err != nil {
				t.Fatal(err)
			}
		}
		m.agent.look() // as the informer does
		synctest.Wait()
		if hold := m.mover.want.Hold; len(hold) != 1 {
			t.Errorf("then it is to hold %v", hold)
		}
	})
}

// Movers get the last observed Node, also after a start without the API server.
func TestTheNodeIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.api.put("one", ledgerText("192.0.2.1 a 3"))
		m.start()
		m.stop()
		for _, n := range []string{"a", "b", "c", "d"} {
			if err := m.api.nodes.Informer().GetStore().Delete(&corev1.Node{
				ObjectMeta: named(n),
			}); err != nil {
				t.Fatal(err)
			}
		}
		m.api.set(true, false)
		m.start()
		defer m.stop()
		if n := m.mover.want.Node; n == nil || n.UID != "uid-a" || len(n.InternalIPs) != 1 {
			t.Errorf("the Node is %+v", n)
		}
	})
}
