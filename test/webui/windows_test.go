package webui

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// window opens the page once more in the same browser, in a window of its own or as a tab.
func (b *tab) window(inTab bool) *tab {
	b.Helper()
	ctx, closeIt := chromedp.NewContext(b.ctx, chromedp.WithNewWindow(!inTab))
	b.Cleanup(closeIt)
	w := &tab{T: b.T, ctx: ctx, feed: b.feed, url: b.url, stop: b.stop}
	w.do(chromedp.Navigate(b.url))
	return w
}

// streams waits until there are so many.
func (b *tab) streams(want int) {
	b.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case got := <-b.feed.watching:
			if got == want {
				return
			}
		case <-late:
			b.Fatalf("there are never %d streams", want)
		}
	}
}

// A browser has six connections to a server, and each window that is up to date keeps one. The
// window that would take the last is told, so that each can still search and open timelines.
func TestManyWindowsOfOneBrowser(t *testing.T) {
	b := open(t, eventful(t, 3), 1000, 800)
	all := []*tab{b}
	for len(all) < 5 {
		w := b.window(false)
		w.until(`document.querySelector("#live").textContent === "live"`)
		all = append(all, w)
	}
	sixth := b.window(false)
	sixth.until(`document.querySelector("#live").textContent === "too many windows are open: close some"`)
	for i, w := range append(all, sixth) {
		w.do(chromedp.SendKeys("#find", "worker-1"))
		w.until(`document.querySelector("#hits [data-hit]") !== null`)
		if i < len(all) {
			w.do(chromedp.Click(`[data-id="node/worker-1"]`))
			w.until(`document.querySelectorAll("#detail .time li").length > 0`)
		}
	}
}

// A tab in the background asks for nothing, and is live again when somebody looks at it.
func TestATabInTheBackground(t *testing.T) {
	b := open(t, eventful(t, 3), 1000, 800)
	b.streams(1)
	other := b.window(true)
	other.until(`document.querySelector("#live").textContent === "live"`)
	if !ask[bool](b, `document.hidden`) {
		t.Fatal("a tab behind another is not hidden: this tests nothing")
	}
	b.streams(1) // that of the other tab: before there were two, or none
	other.do(chromedp.Navigate("about:blank"))
	b.streams(0)
	b.do(call(page.BringToFront, cdp.Empty{}))
	b.streams(1)
	b.until(`document.querySelector("#live").textContent === "live"`)
	b.stayedHere()
}
