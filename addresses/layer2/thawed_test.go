package layer2

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// A virtual machine that holds an address is frozen (a snapshot, a live migration), and the address
// moves. When it resumes, it reads the new ledger before it was ever in doubt, and missed the
// announcement: it sends one probe, and stops when the new holder replies.
func TestAFrozenHolderStops(t *testing.T) {
	cluster := func(m net.HardwareAddr) bool { return m[4] == 1 }
	run := func(p *protocol, from time.Time, d time.Duration) (now time.Time) { // alone
		for now = from; now.Before(from.Add(d)); now = now.Add(simulationStep) {
			p.tick(now)
			p.out = nil
		}
		return now
	}
	now := start
	var machines []*protocol
	for i := range 2 {
		link := Link{Name: "up0", Index: 2, MAC: net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}, Prefixes: uplink.Prefixes}
		p := newProtocol(cluster)
		p.set(now, Desired{Links: []Link{link}, Assignment: addresses.Assignment{
			Cluster: testCluster,
			Hold:    []addresses.Assigned{{Address: address4, Epoch: uint64(i + 1), Held: true}},
		}})
		for key := range p.needed() {
			p.opened(now, key)
		}
		now = run(p, now, time.Minute)
		machines = append(machines, p)
	}
	thawed := machines[0]
	thawed.set(now, Desired{Links: thawed.links, Assignment: addresses.Assignment{
		Cluster: testCluster, Elsewhere: []netip.Addr{address4},
	}})
	began, last := now, time.Duration(-1)
	for ; now.Sub(began) < leaveWait+time.Second; now = now.Add(simulationStep) {
		for i, p := range machines {
			if now.Sub(began)%time.Second == 0 {
				p.receive(now, "up0", request)
			}
			p.tick(now)
			out := p.out
			p.out = nil
			for _, f := range out {
				if f.Kind == Reply && f.To == asker { // only the client receives it
					if p == thawed {
						last = now.Sub(began)
					}
					continue
				}
				frame, err := f.Ethernet()
				if err != nil {
					t.Fatal(err)
				}
				if m, ok := Parse(frame); ok {
					machines[1-i].receive(now, "up0", m)
				}
			}
		}
	}
	if last > 100*time.Millisecond {
		t.Errorf("the former holder answered for %s after it had read that another one holds the address", last)
	}
	if states := machines[1].states(); len(states) != 1 || states[0].Phase != Holding {
		t.Errorf("the new holder is left with %+v", states)
	}
}
