package webui

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

// thing is what the page has of a Machine, a Service or a Route.
type thing struct {
	ID     string
	Tone   string
	Label  string
	Text   string
	Folded bool
	Seen   bool // it takes room on the page
}

const things = `[...document.querySelectorAll("#picture [data-id]")].map((e) => {
	const r = e.getBoundingClientRect();
	return {
		ID: e.dataset.id, Tone: ["ok", "off", "wait", "bad"].find((t) => e.classList.contains(t)),
		Label: e.getAttribute("aria-label"), Text: e.innerText, Folded: e.classList.contains("tile"), Seen: r.width > 8 && r.height > 8,
	};
})`

// The page shows every machine, Service and route of the look, as it fares, and nothing
// else; what is folded is there too.
func TestThePageShowsWhatTheSnapshotHolds(t *testing.T) {
	for _, count := range []int{3, 100, 500} {
		t.Run(fmt.Sprint(count, " machines"), func(t *testing.T) {
			look := eventful(t, count)
			b := open(t, look, 1440, 900)
			v := webui.ViewOf(look)
			shown := map[string]thing{}
			for _, x := range ask[[]thing](b, things) {
				if _, twice := shown[x.ID]; twice {
					t.Errorf("%s is shown twice", x.ID)
				}
				shown[x.ID] = x
			}
			expect := func(id string, tone webui.Tone, folded bool, texts ...string) {
				x, is := shown[id]
				if !is || x.Tone != string(tone) || x.Folded != folded || !x.Seen {
					t.Errorf("%s: shown %t as %+v, want %s, folded %t", id, is, x, tone, folded)
				}
				for _, text := range texts {
					if !strings.Contains(x.Label, text) || !folded && !strings.Contains(x.Text, text) {
						t.Errorf("%s: %q is missing from the label %q or the text %q", id, text, x.Label, x.Text)
					}
				}
				delete(shown, id)
			}
			machines := 0
			for _, g := range v.Groups {
				for _, m := range g.Machines {
					texts := []string{m.Name}
					for _, r := range m.Ranges {
						texts = append(texts, r.Prefix.String())
					}
					expect(m.ID, m.Tone, g.Folded, texts...)
					machines++
				}
			}
			if machines != count+2 {
				t.Errorf("%d machines, want %d, one that joins and one that is gone", machines, count)
			}
			for _, s := range v.Services {
				expect(s.ID, s.Tone, false, slices.Concat([]string{s.Name, s.State}, s.Addresses)...)
			}
			for _, r := range v.Table.Routes {
				expect(r.ID, r.Tone, false, r.Destination.String(), r.Whose, r.Gateway)
			}
			for id := range shown {
				t.Errorf("%s is shown and is not in the look", id)
			}
			b.shows("#pools", v.Pools[0].Name, v.Pools[0].State, v.Pools[1].Name, "in quarantine")
			b.shows("#routes", v.Table.Budget.State, "ambiguous", "foreign")
			for _, f := range v.Findings {
				b.shows("#findings", f.What, f.Remedy)
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
		if !strings.Contains(strings.Join(strings.Fields(all), " "), strings.Join(strings.Fields(text), " ")) {
			b.Errorf("%s doesn't show %q, but\n%s", part, text, all)
		}
	}
}

// A line leads from each Service to its targets, and from each machine to its route.
func TestLinesLeadToTargetsAndRoutes(t *testing.T) {
	look := eventful(t, 3)
	b := open(t, look, 1440, 900)
	lines := 0
	v := webui.ViewOf(look)
	for _, s := range v.Services {
		lines += len(s.Targets)
	}
	for _, r := range v.Table.Routes {
		if r.Node != "" {
			lines++
		}
	}
	if got := ask[int](b, `document.querySelectorAll("#links path").length`); got != lines || lines < 9 {
		t.Errorf("%d lines, want %d", got, lines)
	}
	if got := ask[int](b, `document.querySelectorAll("#links path.bad").length`); got != 1 {
		t.Errorf("%d lines to unhealthy targets, want 1", got)
	}
	b.stayedHere()
}

// What happens is shown without a reload; what has the focus and what is open stay.
func TestThePageIsLive(t *testing.T) {
	look := eventful(t, 3)
	b := open(t, look, 1440, 900)
	b.do(chromedp.Click(`[data-id="node/worker-1"]`))
	b.until(`document.querySelectorAll("#detail .time li").length > 0`)
	next := eventful(t, 4)
	next.Taken = next.Taken.Add(1)
	b.feed.show(survey.Live{Snapshot: next, Trouble: "the API server is away"})
	b.until(`document.querySelector("[data-id='node/control-2']") !== null`)
	b.shows("#trouble", "the API server is away")
	b.shows("#live", "not up to date")
	if got := ask[string](b, `document.activeElement.dataset.id`); got != "node/worker-1" {
		t.Errorf("the focus went to %q", got)
	}
	if !ask[bool](b, `!document.querySelector("#detail").hidden`) {
		t.Error("the timeline was closed")
	}
	b.feed.show(survey.Live{Snapshot: look})
	b.until(`document.querySelector("#trouble").hidden && document.querySelector("[data-id='node/control-2']") === null`)
	b.stayedHere()
}

func TestThePageSaysThatItsServerEnded(t *testing.T) {
	b := open(t, eventful(t, 3), 1000, 800)
	b.shows("#live", "live")
	b.stop()
	b.until(`document.querySelector("#live").textContent === "underlayctl has ended"`)
}

// Of too many windows the last says so, and is live when another was closed.
func TestTooManyWindows(t *testing.T) {
	b := open(t, eventful(t, 3), 1000, 800)
	b.shows("#live", "live")
	ctx, closeAll := context.WithCancel(t.Context())
	defer closeAll()
	for full := false; !full; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		said := bufio.NewScanner(answer.Body)
		said.Scan()
		full = said.Text() == "retry: 5000"
	}
	another, closeIt := chromedp.NewContext(b.ctx)
	defer closeIt()
	late := &tab{T: t, ctx: another, feed: b.feed, url: b.url, stop: b.stop}
	late.do(chromedp.Navigate(b.url))
	late.until(`document.querySelector("#live").textContent === "too many windows are open: close some"`)
	closeAll()
	late.until(`document.querySelector("#live").textContent === "live"`)
	b.stop()
	late.until(`document.querySelector("#live").textContent === "underlayctl has ended"`)
}

func TestAHealthyClusterLooksSo(t *testing.T) {
	look, err := snapshots.Healthy(3)
	if err != nil {
		t.Fatal(err)
	}
	// Of what is installed nothing is seen, and doctor says so.
	b := open(t, look, 1440, 900)
	if got := ask[int](b, `document.querySelectorAll("#picture .bad, #picture .wait").length`); got != 0 {
		t.Errorf("%d things are in trouble", got)
	}
	b.shows("#counts", "3 machines", "all serve", "nothing is wrong")
	b.stayedHere()
}

// Where there is not room for three columns they stand below each other, and nothing
// has to be scrolled sideways.
func TestANarrowWindow(t *testing.T) {
	for _, width := range []int{1100, 700, 380} {
		b := open(t, eventful(t, 100), width, 800)
		if got := ask[int](b, `document.documentElement.scrollWidth`); got > width {
			t.Errorf("at %d the page is %d wide", width, got)
		}
		b.stayedHere()
	}
}

// Where nodes hold the addresses of Services, lines lead to those that do.
func TestThePageShowsAddressesThatNodesHold(t *testing.T) {
	look, err := snapshots.Addressed(5)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, look, 1440, 900)
	b.shows("[data-id='service/shop/web']", "held", "192.0.2.17", "address of pool segment, layer2")
	b.shows("[data-id='service/shop/dns']", "not held", "192.0.2.18")
	b.shows("[data-id='service/shop/mail']", "waits for an address", "every pool is full")
	b.shows("#pools", "segment", "2 of 4 addresses free")
	if got := ask[int](b, `document.querySelectorAll("#links path.bad").length`); got != 1 {
		t.Errorf("%d lines to nodes that don't hold what they are to, want 1", got)
	}
	b.stayedHere()
}
