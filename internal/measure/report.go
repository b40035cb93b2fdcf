package measure

import (
	"fmt"
	"strings"
	"time"
)

// Markdown is a report to be attached to an issue.
func (r Result) Markdown() string {
	var b strings.Builder
	b.WriteString("# What the cloud was measured to do\n\n")
	for _, line := range r.head() {
		b.WriteString("- " + line + "\n")
	}
	b.WriteString("\n" + Summary(r.Rows) + "\n\n| fact | question | simulator | seen | |\n|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n",
			row.Fact, cellText(row.Question), cellText(row.Assumed), cellText(row.Seen), row.marked())
	}
	section(&b, "Notes", r.Rows, func(row Row) string { return row.Note })
	section(&b, "Not found out, or not surely", r.Rows, func(row Row) string { return row.Why })
	if reasons := Reasons(r.LeftOut); len(reasons) > 0 {
		b.WriteString("\n## Not tried\n\n")
		for _, reason := range reasons {
			fmt.Fprintf(&b, "- %s: %s\n", quoted(reason.Facts), cellText(reason.Why))
		}
	}
	return b.String()
}

// head is what the run was.
func (r Result) head() []string {
	out := []string{
		"hcloud-sim " + r.Version,
		r.Started.UTC().Format("2006-01-02 15:04 UTC") + ", took " +
			time.Duration(r.Seconds*float64(time.Second)).Round(time.Second).String(),
		"API: " + r.Endpoint + ", location " + r.Location,
	}
	var types []string
	if r.ServerType != "" {
		types = append(types, "servers: "+r.ServerType+", "+r.Image)
	}
	if r.LoadBalancerType != "" {
		types = append(types, "load balancer: "+r.LoadBalancerType)
	}
	if len(types) > 0 {
		out = append(out, strings.Join(types, "; "))
	}
	if r.Ended != "" {
		out = append(out, "ended early: "+r.Ended)
	}
	if r.Left != "" {
		out = append(out, "left in the project: "+r.Left)
	}
	return out
}

// marked is the verdict, with those in bold that somebody has to look at.
func (r Row) marked() string {
	if r.Verdict == Differs {
		return "**" + string(r.Verdict) + "**"
	}
	return string(r.Verdict)
}

// section lists a text of each row that has it.
func section(b *strings.Builder, title string, rows []Row, of func(Row) string) {
	first := true
	for _, row := range rows {
		text := of(row)
		if text == "" {
			continue
		}
		if first {
			b.WriteString("\n## " + title + "\n\n")
		}
		first = false
		fmt.Fprintf(b, "- `%s`: %s\n", row.Fact, cellText(text))
	}
}

// cellText is a text on one line that ends no cell and makes no markup.
func cellText(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "`", "'").Replace(text)
}

func quoted(facts []FactID) string {
	var out []string
	for _, f := range facts {
		out = append(out, "`"+string(f)+"`")
	}
	return strings.Join(out, ", ")
}
