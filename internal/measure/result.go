package measure

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// Verdict compares what was seen with what the simulator assumes.
type Verdict string

const (
	AsAssumed   Verdict = "as assumed"
	Differs     Verdict = "differs"
	Measured    Verdict = "measured" // nothing is assumed, or a quantity
	NotFoundOut Verdict = "not found out"
)

// Row is what is known of a fact after a run.
type Row struct {
	Fact          FactID
	Assumed, Seen string
	Verdict       Verdict
	// Why there is no answer, or no sure one, and what else was seen.
	Why, Note string
}

// Rows are what was seen of the facts that were to be found out, in their order, beside what a
// simulator with the profile assumes. A fact that nothing was seen of has a row that says so.
func Rows(facts []Fact, tried []FactID, seen []Observation, assumed profile.Profile) []Row {
	var rows []Row
	for _, f := range facts {
		if !slices.Contains(tried, f.ID) {
			continue
		}
		o := Observation{Fact: f.ID, Why: "the run ended before it"}
		if i := slices.IndexFunc(seen, func(o Observation) bool { return o.Fact == f.ID }); i >= 0 {
			o = seen[i]
		}
		row := Row{Fact: f.ID, Seen: o.Seen, Why: o.Why, Note: o.Note}
		if f.Assumed != nil {
			row.Assumed = f.Assumed(assumed)
		}
		row.Verdict = f.verdict(o.Seen, row.Assumed)
		rows = append(rows, row)
	}
	return rows
}

// verdict judges what was seen.
func (f Fact) verdict(seen, assumed string) Verdict {
	switch {
	case seen == "":
		return NotFoundOut
	case f.Quantity, f.Assumed == nil:
		return Measured
	case seen == assumed:
		return AsAssumed
	}
	return Differs
}

// Summary counts the rows by verdict, in words.
func Summary(rows []Row) string {
	var parts []string
	for _, v := range []Verdict{AsAssumed, Differs, Measured, NotFoundOut} {
		n := 0
		for _, r := range rows {
			n += count(r.Verdict == v)
		}
		word := string(v)
		if v == Differs && n != 1 {
			word = "differ"
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	return fmt.Sprintf("%s: %s.", Plural(len(rows), "fact"), strings.Join(parts, ", "))
}

// Plural renders a count: "1 server", "2 servers".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Recorded is a profile with what was seen in it; what was not stays as it is.
func Recorded(p profile.Profile, seen []Observation) profile.Profile {
	p.Version = profile.Version
	for _, o := range seen {
		if o.Seen != "" && o.Record != nil {
			o.Record(&p)
		}
	}
	return p
}

// Reason is why some facts weren't tried.
type Reason struct {
	Facts []FactID
	Why   string
}

// Reasons groups facts that weren't tried by why, in order.
func Reasons(left []LeftOut) (out []Reason) {
	for _, l := range left {
		i := slices.IndexFunc(out, func(r Reason) bool { return r.Why == l.Why })
		if i < 0 {
			i, out = len(out), append(out, Reason{Why: l.Why})
		}
		out[i].Facts = append(out[i].Facts, l.Fact)
	}
	return out
}

// Completed is a profile in which what it doesn't say stands as in the default.
func Completed(p profile.Profile) (profile.Profile, error) {
	whole := profile.Default()
	text, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(text, &whole)
	}
	if err != nil {
		return profile.Profile{}, fmt.Errorf("completing a profile: %w", err)
	}
	return whole, nil
}
