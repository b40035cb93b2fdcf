package webui

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

// Where nothing limits how many Nodes can join, or nothing tells, the page says nothing of it, and
// shows all else.
func TestWithoutALimitOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		pools  string
	}{
		"addresses alone": {func(c *config.Config) { c.IPAM.Enabled, c.IPAM.Pools = false, nil }, "segment"},
		"each server's own": {func(c *config.Config) {
			c.IPAM.Pools = []config.Pool{{Name: "own", NodeMask: 80, Own: true}}
		}, "/80 of each server's own"},
		"pools that can't be": {func(c *config.Config) {
			c.IPAM.Pools = append(c.IPAM.Pools, c.IPAM.Pools[0])
		}, "segment"},
	} {
		t.Run(name, func(t *testing.T) {
			look, err := snapshots.Addressed(3)
			if err != nil {
				t.Fatal(err)
			}
			c.change(&look.Config)
			b := open(t, look, 1440, 900)
			b.shows("#live", "live")
			b.shows("#pools", c.pools, "2 of 4 addresses free")
			b.shows("#counts", "3 machines", "4 Services", "findings")
			if ask[bool](b, `document.querySelector("#counts").innerText.includes("have room")`) {
				t.Error("the page says for how many Nodes there is room")
			}
			b.shows("[data-id='service/shop/web']", "held")
			b.stayedHere()
		})
	}
}

// A part of the page that can't be drawn keeps no other from being drawn, and is told.
func TestAPartThatCannotBeDrawn(t *testing.T) {
	b := open(t, eventful(t, 3), 1440, 900)
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#routes .budget").remove()`))
	next := eventful(t, 4)
	next.Taken = next.Taken.Add(1)
	b.feed.show(survey.Live{Snapshot: next, Trouble: "The API server is away."})
	b.until(`document.querySelector("[data-id='node/control-2']") !== null`)
	b.until(`document.querySelector("#pools").innerText.includes("room for 11 more Nodes")`)
	b.shows("#trouble", "The API server is away. The page can't draw routes")
	b.shows("#live", "not up to date")
}

// What a look has twice is there twice, however often the page is drawn.
func TestUpdatesWithEqualIDs(t *testing.T) {
	look := eventful(t, 3)
	foreign := routes.Route{Dst: snapshots.PodCIDR(900), Via: snapshots.Gateway(901)}
	look.Network.Routes = append(look.Network.Routes, foreign, foreign)
	b := open(t, look, 1440, 900)
	const count = `document.querySelectorAll("#routes .list > *").length`
	want := ask[int](b, count)
	for i := range 3 {
		next := *look
		next.Taken = next.Taken.Add(1)
		next.Nodes = look.Nodes[:len(look.Nodes)-i%2] // so that something is news
		look = &next
		b.feed.show(survey.Live{Snapshot: look})
		b.until(`document.body.dataset.taken === "` + look.Taken.Format("2006-01-02T15:04:05.999999999Z07:00") + `"`)
		if got := ask[int](b, count); got != want {
			t.Errorf("after update %d there are %d routes, want %d", i+1, got, want)
		}
	}
	b.stayedHere()
}

// The timeline of a former Node says that another one has its name.
func TestTheTimelineOfAFormerNode(t *testing.T) {
	look := eventful(t, 3)
	look.Ledger.Data["worker-1"] += "\nuid=uid-former id=hcloud://9 10.250.1.0/24@default-ipv4 released=2026-11-22T11:59:00Z"
	b := open(t, look, 1440, 900)
	b.do(chromedp.Click(`[data-id="node/worker-1/uid-former"]`))
	b.until(`document.querySelectorAll("#detail .time li").length > 0`)
	b.shows("#detail", "Node worker-1", "asked for", "the former Node with UID uid-former", "10.250.1.0/24")
	if got := ask[string](b, `document.querySelector("#h-detail").innerText`); got != "Node worker-1" {
		t.Errorf("the title is %q", got)
	}
	b.stayedHere()
}
