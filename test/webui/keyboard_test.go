package webui

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// focused is the element with the focus: the object of a row, or an element.
func (b *tab) focused() string {
	b.Helper()
	return ask[string](b, `document.activeElement.dataset.id ?? document.activeElement.id`)
}

func (b *tab) press(keys ...string) {
	b.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// key presses a key that writes a character, if the page allows it, as a keyboard does: chromedp
// sends the character separately, to the element that has the focus by then.
func (b *tab) key(name, code, text string, number int64) {
	b.Helper()
	press := input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyDown, Key: name, Code: code, Text: text,
		WindowsVirtualKeyCode: number,
	}
	b.do(call(input.DispatchKeyEvent, press))
	press.Type, press.Text = input.DispatchKeyEventTypeKeyUp, ""
	b.do(call(input.DispatchKeyEvent, press))
}

func (b *tab) slash() { b.Helper(); b.key("/", "Slash", "/", 191) }
func (b *tab) enter() { b.Helper(); b.key("Enter", "Enter", "\r", 13) }

// A search by name, by an address in a podCIDR and by a load balancer's address, by keyboard only.
func TestFindingByKeyboard(t *testing.T) {
	b := open(t, eventful(t, 500), 1440, 900)
	for _, c := range []struct{ text, want string }{
		{"worker-300", "Node/worker-300"},
		{"10.241.43.17", "Node/worker-296"}, // in 10.241.43.0/24, the 299th Node's
		{"fd00:10:244:2::1", "Node/control-2"},
		{"192.0.2.8", "Service/shop/api"},
		{"smtp", "Service/mail/smtp"},
	} {
		b.slash()
		if got := b.focused(); got != "find" {
			t.Fatalf("/ leads to %q", got)
		}
		b.do(chromedp.SendKeys("#find", c.text))
		b.until(`document.querySelector("#hits [aria-selected=true]")?.dataset.hit === ` + quoted(c.want))
		b.enter()
		if got := b.focused(); got != c.want {
			t.Errorf("%s: the focus is at %q, want %q", c.text, got, c.want)
		}
		b.until(`document.querySelectorAll("#detail .time li").length > 0`)
		b.shows("#detail", strings.TrimPrefix(strings.TrimPrefix(c.want, "Node/"), "Service/"))
		b.press(kb.Escape)
		if !ask[bool](b, `document.querySelector("#detail").hidden`) {
			t.Error("Escape leaves the timeline open")
		}
		if got := b.focused(); got != c.want {
			t.Errorf("after Escape the focus is at %q, want %q", got, c.want)
		}
	}
	b.slash()
	b.do(chromedp.SendKeys("#find", "nobody-has-this"))
	b.until(`document.querySelector("#hits").innerText.includes("nothing has that name")`)
	b.press(kb.Escape)
	if ask[string](b, `document.querySelector("#find").value`) != "" || b.focused() == "find" {
		t.Error("Escape does not leave the search")
	}
	b.stayedHere()
}

func quoted(s string) string { return `"` + s + `"` }

// Arrow keys move among the rows of a table; Tab moves from table to table, not through 500 rows.
func TestMovingByKeyboard(t *testing.T) {
	b := open(t, eventful(t, 500), 1440, 900)
	b.do(chromedp.Focus(`#nodes [tabindex="0"]`))
	first := b.focused()
	b.press(kb.ArrowDown)
	second := b.focused()
	b.press(kb.ArrowUp)
	if second == first || b.focused() != first {
		t.Errorf("↓ from %s leads to %s, and ↑ from there to %s", first, second, b.focused())
	}
	b.press(kb.End)
	if got := b.focused(); got != "Node/worker-new" {
		t.Errorf("End leads to %s", got)
	}
	b.press(kb.Home)
	if got := b.focused(); got != "Node/control-1" {
		t.Errorf("Home leads to %s", got)
	}
	b.enter()
	b.until(`document.querySelectorAll("#detail .time li").length > 0`)
	b.shows("#detail", "Node control-1", "10.240.1.0/24")

	seen := map[string]bool{}
	b.do(chromedp.Focus("#find"))
	stops := 0
	for ; stops < 40; stops++ {
		b.press(kb.Tab)
		at := ask[string](b, `document.activeElement.closest("section, nav, footer")?.id ?? ""`)
		seen[at] = true
		if at == "" && stops > 5 {
			break
		}
	}
	for _, part := range []string{"summary", "findings", "nodes", "lb", "routes", "pools", "detail"} {
		if !seen[part] {
			t.Errorf("Tab never comes to %s, but to %v", part, seen)
		}
	}
	if stops >= 30 {
		t.Errorf("%d stops from the search to the end of the page", stops)
	}
	b.stayedHere()
}

// Each element that is interactive or has a meaning has a text.
func TestEveryElementHasALabel(t *testing.T) {
	b := open(t, eventful(t, 100), 1440, 900)
	if got := ask[[]string](b, `[...document.querySelectorAll("button, input, [role=img], section, nav, th, tr")]
		.filter((e) => !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.innerText)).map((e) => e.outerHTML)`); len(got) > 0 {
		t.Errorf("without a label: %q", got)
	}
	b.stayedHere()
}
