package webui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

// cells are the texts and tones of all rows of a part of the page.
const cells = `[...document.querySelectorAll("#%s tbody tr")].map((r) => [...r.cells].map((c) => c.innerText.trim() + "|" +
	(["good", "warn", "bad", "faint"].find((t) => c.classList.contains(t)) ?? "")))`

// The page shows each cell of each table of a snapshot with its tone, and nothing else.
func TestThePageShowsTheSnapshot(t *testing.T) {
	for _, count := range []int{3, 100, 500} {
		t.Run(fmt.Sprint(count, " Nodes"), func(t *testing.T) {
			look := eventful(t, count)
			b := open(t, look, 1440, 900)
			for _, p := range webui.ViewOf(survey.Live{Snapshot: look}).Parts {
				got := ask[[][]string](b, fmt.Sprintf(cells, p.ID))
				var want [][]string
				for _, shown := range p.Tables {
					for _, r := range shown.Rows {
						var row []string
						for _, c := range r.Cells {
							row = append(row, strings.Join(strings.Fields(c.Text), " ")+"|"+string(c.Tone))
						}
						want = append(want, row)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: got\n%q\nwant\n%q", p.ID, got, want)
				}
				b.shows("#"+p.ID, append(append([]string{p.Title}, p.Lines...), p.Notes...)...)
			}
			b.stayedHere()
		})
	}
}

// shows fails if a part of the page lacks a text.
func (b *tab) shows(part string, texts ...string) {
	b.Helper()
	all := ask[string](b, fmt.Sprintf("document.querySelector(%q).innerText", part))
	for _, text := range texts {
		have, want := strings.Join(strings.Fields(all), " "), strings.Join(strings.Fields(text), " ")
		if !strings.Contains(strings.ToLower(have), strings.ToLower(want)) {
			b.Errorf("%s doesn't show %q, but\n%s", part, text, all)
		}
	}
}

// Changes are shown without a reload; the focus and open elements are kept.
func TestThePageIsLive(t *testing.T) {
	look := eventful(t, 3)
	b := open(t, look, 1440, 900)
	b.do(chromedp.Click(`#nodes [data-id="Node/worker-1"]`))
	b.until(`document.querySelectorAll("#detail .time li").length > 0`)
	next := eventful(t, 4)
	next.Taken = next.Taken.Add(1)
	b.feed.show(survey.Live{Snapshot: next, Trouble: "the API server is away"})
	b.until(`document.querySelector("[data-id='Node/control-2']") !== null`)
	b.shows("#trouble", "the API server is away")
	b.shows("#live", "not up to date")
	if got := b.focused(); got != "Node/worker-1" {
		t.Errorf("the focus went to %q", got)
	}
	if !ask[bool](b, `!document.querySelector("#detail").hidden`) {
		t.Error("the timeline was closed")
	}
	b.feed.show(survey.Live{Snapshot: look})
	b.until(`document.querySelector("#trouble").hidden && document.querySelector("[data-id='Node/control-2']") === null`)
	b.stayedHere()
}

func TestThePageShowsThatItsServerEnded(t *testing.T) {
	b := open(t, eventful(t, 3), 1000, 800)
	b.shows("#live", "live")
	b.stop()
	b.until(`document.querySelector("#live").textContent === "underlayctl has ended"`)
}

func TestAHealthyClusterLooksSo(t *testing.T) {
	look, err := snapshots.Healthy(3)
	if err != nil {
		t.Fatal(err)
	}
	// The snapshot lacks the parts about the installation, and doctor reports it.
	b := open(t, look, 1440, 900)
	if got := ask[int](b, `document.querySelectorAll("#parts .bad, #parts .warn").length`); got != 0 {
		t.Errorf("%d cells are in trouble", got)
	}
	b.shows("#summary", "Nodes well", "Room for")
	b.stayedHere()
}

// In a window that is too narrow for a table only the table scrolls sideways.
func TestANarrowWindow(t *testing.T) {
	for _, width := range []int{1100, 700, 380} {
		b := open(t, eventful(t, 100), width, 800)
		if got := ask[int](b, `document.documentElement.scrollWidth`); got > width {
			t.Errorf("at %d the page is %d wide", width, got)
		}
		b.stayedHere()
	}
}

func TestThePageShowsAddressesThatNodesHold(t *testing.T) {
	look, err := snapshots.Addressed(5)
	if err != nil {
		t.Fatal(err)
	}
	look.Config.IPAM.Pools = []config.Pool{{Name: "own", NodeMask: 80, Own: true}}
	b := open(t, look, 1440, 900)
	b.shows("#addresses", "192.0.2.17 shop/shop,shop/web segment layer2", "held", "192.0.2.18 shop/dns", "not held", "every pool is full")
	b.shows("#pools", "each server's own")
	b.stayedHere()
}

// If a part of the page can't be drawn, the others still are, and the error is reported.
func TestAPartThatCannotBeDrawn(t *testing.T) {
	b := open(t, eventful(t, 3), 1440, 900)
	b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("nodes").replaceWith = () => { throw new Error("a test") }`))
	next := eventful(t, 4)
	b.feed.show(survey.Live{Snapshot: next, Trouble: "The API server is away."})
	b.until(`document.querySelector("#pools").innerText.includes("Room for 11 more Nodes")`)
	b.until(`document.querySelector("#live").textContent === "not up to date"`)
	b.shows("#trouble", "The API server is away. The page can't draw Nodes (a test)")
}

// Duplicate rows of a snapshot are shown twice, however often the page is drawn.
func TestUpdatesWithEqualRows(t *testing.T) {
	look := eventful(t, 3)
	foreign := routes.Route{Dst: snapshots.PodCIDR(900), Via: snapshots.Gateway(901)}
	look.Network.Routes = append(look.Network.Routes, foreign, foreign)
	b := open(t, look, 1440, 900)
	const count = `document.querySelectorAll("#routes table:first-of-type tbody tr").length`
	want := ask[int](b, count)
	for i := range 3 {
		next := *look
		next.Taken = next.Taken.Add(1)
		next.Nodes = look.Nodes[:len(look.Nodes)-i%2] // so that the page is drawn again
		look = &next
		b.feed.show(survey.Live{Snapshot: look})
		b.until(`document.body.dataset.taken === "` + look.Taken.Format(time.RFC3339Nano) + `"`)
		got := ask[[][]string](b, fmt.Sprintf(cells, "routes"))
		twice := 0
		for _, row := range got {
			if strings.HasPrefix(row[0], foreign.Dst.String()) {
				twice++
			}
		}
		if twice != 2 || want < 5 {
			t.Errorf("after update %d the route is there %d times, of %d", i+1, twice, want)
		}
	}
	b.stayedHere()
}

// A tab in the background sends no requests, and is updated again when it is in front.
func TestATabInTheBackground(t *testing.T) {
	b := open(t, eventful(t, 3), 1000, 800)
	ctx, closeIt := chromedp.NewContext(b.ctx, chromedp.WithNewWindow(false))
	defer closeIt()
	other := &tab{T: b.T, ctx: ctx, feed: b.feed, url: b.url, stop: b.stop}
	other.do(chromedp.Navigate("about:blank"))
	if !ask[bool](b, `document.hidden`) {
		t.Fatal("a tab behind another is not hidden: this tests nothing")
	}
	before := b.feed.seen()
	time.Sleep(5 * time.Second)             // two intervals of a page in front
	if n := b.feed.seen() - before; n > 1 { // one was in flight
		t.Errorf("a tab in the background requested %d views", n)
	}
	b.do(call(page.BringToFront, cdp.Empty{}))
	b.until(`!document.hidden && document.querySelector("#live").textContent === "live"`)
	b.do(chromedp.Evaluate[chromedp.Void](`document.body.dataset.taken = ""`))
	b.until(`document.body.dataset.taken !== ""`)
	b.stayedHere()
}
