package agent

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// While a pool's mover changes, agents and the manager have different configurations for a while:
// of the nodes that announce an address to routers only one may reply for it on a segment.
func TestOneNodeRepliesForAddressesThatManyAnnounce(t *testing.T) {
	for _, c := range []struct {
		together bool
		ledger   string
		holders  string
	}{
		{together: false, ledger: "192.0.2.1 b 3", holders: "b"},
		{together: false, ledger: "192.0.2.1 a,b,c 4", holders: "a"},
		{together: false, ledger: "192.0.2.1 b,c 4", holders: "b"},
		{together: true, ledger: "192.0.2.1 a,b,c 4", holders: "a b c"},
		{together: true, ledger: "192.0.2.1 b 5", holders: "b"},
	} {
		ledger, err := addresses.ParseLedger([]byte(ledgerText(c.ledger)))
		if err != nil {
			t.Fatal(err)
		}
		movers := []Mover{{Name: "one", Pools: []addresses.Pool{pool(t, "192.0.2.0/24")}, Together: c.together}}
		var holders []string
		for _, self := range []string{"a", "b", "c", "d"} {
			d := situation{
				Knowledge: Knowledge{Ledger: ledger, Cluster: "one"}, self: self, movers: movers,
				nodes: []*kube.Node{{Name: self}}, before: func(netip.Addr) bool { return false },
			}.decide()
			if len(d.refused) > 0 || len(d.wants[0].Hold)+len(d.wants[0].Elsewhere) != 1 {
				t.Errorf("%+v: %s is told %+v", c, self, d)
			}
			if len(d.wants[0].Hold) > 0 {
				holders = append(holders, self)
			}
		}
		if got := strings.Join(holders, " "); got != c.holders {
			t.Errorf("%+v: %q hold it", c, got)
		}
	}
}

// An agent that starts without a session to a router keeps its announcements, and so does the next
// one: routers keep its routes for a while.
func TestStartedAgainWithoutARouter(t *testing.T) {
	const announced = "192.0.2.1 a,b 0"
	for name, run := range map[string]func(m *machine){
		"the session ends before the agent does": func(m *machine) {
			m.start()
			m.after(time.Second)
			m.mover.refuse("192.0.2.1", addresses.NoRouter)
			m.agent.look()
			m.after(time.Second)
			m.stop()
		},
		"the agent ends before it has a session": func(m *machine) {
			m.start()
			m.after(time.Second)
			m.stop()
			m.api.set(true, false)
			m.start(func(mover *fakeMover) { mover.refuse("192.0.2.1", addresses.NoRouter) })
			m.stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				m.api.put("one", ledgerText(announced))
				run(m)
				m.api.set(true, false)
				m.start()
				m.expect("one hold [{192.0.2.1 0 true}] elsewhere [] doubt true")
				m.stop()
			})
		})
	}
}
