package recording

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

const (
	rows       = 26 // of the terminal
	lineHeight = 18
	textWidth  = 877 // of a whole line in the common fonts at 13 pixels
	margin     = 16
	// last is how long the end is shown before it starts again.
	last = 8 * time.Second
)

// The terminal is dark on light pages and on dark ones. If motion is disabled or unsupported, the
// last step is shown.
const style = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre}
.b{font-weight:bold}.d{fill:#9aa4ae}.g{fill:#56d364}.y{fill:#e3b341}.c{fill:#76e3ea}.m{fill:#d2a8ff}.u{fill:#79c0ff}.o{fill:#ffa657}
@media(prefers-reduced-motion:reduce){#lines,#rest{animation:none}}
`

// SVG is the recording as a picture for a README. The lines are in a column that moves up as they
// appear, and lines that have not appeared are covered.
func (r Recording) SVG(title, description string) string {
	width, height := textWidth+2*margin, rows*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="t e">`+"\n", width, height)
	fmt.Fprintf(&b, "<title id=\"t\">%s</title>\n<desc id=\"e\">%s</desc>\n<style>\n%s", escaped(title), escaped(description), style)
	b.WriteString(r.motion())
	fmt.Fprintf(&b, "</style>\n<clipPath id=\"w\"><rect x=\"0\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n", margin, width, rows*lineHeight)
	fmt.Fprintf(&b, `<rect x=".5" y=".5" width="%d" height="%d" rx="8" fill="#0d1117" stroke="#3d444d"/>`+"\n", width-1, height-1)
	b.WriteString("<g clip-path=\"url(#w)\"><g id=\"lines\">\n")
	for i, l := range r.lines {
		if l.text != "" {
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%s</text>\n", margin, margin+i*lineHeight+13, painted(l.text))
		}
	}
	fmt.Fprintf(&b, `<rect id="rest" x="1" y="%d" width="%d" height="%d" fill="#0d1117"/>`+"\n", margin, width-2, (len(r.lines)+1)*lineHeight)
	b.WriteString("</g></g>\n</svg>\n")
	return b.String()
}

// motion is the style that moves the lines, and their position without motion.
func (r Recording) motion() string {
	whole := r.lines[len(r.lines)-1].at + last
	var lines, rest strings.Builder
	for i, l := range r.lines {
		if i+1 < len(r.lines) && r.lines[i+1].at == l.at {
			continue // they appear together
		}
		percent := 100 * l.at.Seconds() / whole.Seconds()
		fmt.Fprintf(&lines, "%.2f%%{transform:translateY(%dpx)}", percent, raised(i+1))
		fmt.Fprintf(&rest, "%.2f%%{transform:translateY(%dpx)}", percent, (i+1)*lineHeight)
	}
	still := r.still()
	return fmt.Sprintf("#lines{transform:translateY(%dpx);animation:lines %.1fs step-end infinite}\n", raised(still), whole.Seconds()) +
		fmt.Sprintf("#rest{transform:translateY(%dpx);animation:rest %.1fs step-end infinite}\n", still*lineHeight, whole.Seconds()) +
		"@keyframes lines{" + lines.String() + "}\n@keyframes rest{" + rest.String() + "}\n"
}

// raised is how far the lines are moved up after a number of them have appeared.
func raised(came int) int { return min(0, rows-came) * lineHeight }

// still is how many lines have appeared when the last step is over.
func (r Recording) still() int {
	for i := len(r.lines) - 1; i > 0; i-- {
		if held.MatchString(r.lines[i].text) {
			return i + 1
		}
	}
	return len(r.lines)
}

// painted is a line with the colors of a terminal.
func painted(text string) string {
	switch {
	case strings.HasPrefix(text, "$ "), strings.HasPrefix(text, "▸ "), strings.HasPrefix(text, "── "):
		return span("b", text)
	case strings.HasPrefix(strings.TrimLeft(text, " "), "✓ "):
		return span("g", text)
	}
	at := event.FindStringSubmatchIndex(text)
	if at == nil {
		return escaped(text)
	}
	subject, what := text[at[4]:at[5]], text[at[6]:at[7]]
	tone := ""
	switch {
	case what == "Ready", strings.HasSuffix(what, " healthy"), what == "taints gone":
		tone = "g"
	case strings.HasSuffix(what, "removed"), strings.Contains(what, "deleted"), strings.HasSuffix(what, "=Unknown"):
		tone = "y"
	}
	return escaped(text[:at[4]]) + span(color(subject), subject) + escaped(text[at[5]:at[6]]) +
		span(tone, what) + span("d", text[at[7]:])
}

// color is a subject's own; names that differ in their last digit have different ones.
func color(subject string) string {
	colors := []string{"c", "m", "u", "o"}
	return colors[int(subject[len(subject)-1])%len(colors)]
}

func span(class, text string) string {
	if class == "" || text == "" {
		return escaped(text)
	}
	return `<tspan class="` + class + `">` + escaped(text) + `</tspan>`
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder returns no errors
	return b.String()
}
