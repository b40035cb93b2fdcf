package webui

import (
	"fmt"
	"testing"
)

// contrast computes in the browser the contrast of each text with its background, as the Web
// Content Accessibility Guidelines define it, and returns the lowest with its text. The background
// is the nearest ancestor's color that isn't transparent.
const contrast = `(() => {
	const parse = (c) => { const n = c.match(/[\d.]+/g).map(Number); return { rgb: n.slice(0, 3), a: n[3] ?? 1 }; };
	const light = ({ rgb }) => { const [r, g, b] = rgb.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > 0.9) return c; } return { rgb: [255, 255, 255] }; };
	let worst = { ratio: 99, text: "" };
	for (const e of document.querySelectorAll("body *")) {
		const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
		if (!text || !e.offsetParent) continue;
		const a = light(parse(getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < worst.ratio) worst = { ratio, text: text.slice(0, 60) };
	}
	return worst;
})()`

// In light and in dark mode every text is readable (a contrast of 4.5 at least, as WCAG 2.2
// requires for level AA), and the two modes differ.
func TestColors(t *testing.T) {
	grounds := map[string]bool{}
	for _, name := range []string{"light", "dark"} {
		b := open(t, eventful(t, 100), 1440, 900, scheme(name))
		worst := ask[struct {
			Ratio float64
			Text  string
		}](b, contrast)
		if worst.Ratio < 4.5 {
			t.Errorf("%s: %q has a contrast of %.2f only", name, worst.Text, worst.Ratio)
		}
		grounds[ask[string](b, `getComputedStyle(document.documentElement).backgroundColor`)] = true
		b.stayedHere()
	}
	if len(grounds) != 2 {
		t.Errorf("light and dark have the same ground: %v", grounds)
	}
}

// Tones differ by their shape too: for color-blind users, and on paper.
func TestTonesHaveShapes(t *testing.T) {
	b := open(t, eventful(t, 3), 1440, 900)
	shapes := map[string]string{}
	for _, tone := range []string{"good", "warn", "bad", "faint"} {
		shape := ask[string](b, fmt.Sprintf(`(() => { const s = getComputedStyle(document.querySelector("footer .mark.%s")); return [s.borderRadius, s.borderStyle, s.borderLeftColor === s.borderRightColor, s.transform, s.borderWidth].join(); })()`, tone))
		for other, its := range shapes {
			if its == shape {
				t.Errorf("%s and %s have the same shape: %s", tone, other, shape)
			}
		}
		shapes[tone] = shape
	}
}
