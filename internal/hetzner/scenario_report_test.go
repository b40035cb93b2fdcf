package hetzner_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// settling is how long after an outage responses may still be affected.
const settling = time.Second

// in reports whether an event at a time belongs to the phase. Requests in flight when an outage
// ends belong to the outage.
func (p *phase) in(then time.Time) bool {
	if p.refused {
		return !then.Before(p.from) && then.Before(p.to.Add(settling))
	}
	from := p.from
	if p.rushed != nil {
		from = from.Add(settling)
	}
	return !then.Before(from) && then.Before(p.to)
}

func (s *scenario) requests(p *phase) (in []hcloudsim.Request) {
	for _, r := range s.sim.Requests() {
		if p.in(r.Time) {
			in = append(in, r)
		}
	}
	return in
}

// answers counts a phase's responses by their status.
func (s *scenario) answers(p *phase) map[int]int {
	counts := map[int]int{}
	for _, r := range s.requests(p) {
		counts[r.Status]++
	}
	return counts
}

// took returns the durations of the work that was done in a phase.
func (s *scenario) took(p *phase, work string) (all []time.Duration) {
	for _, d := range s.deeds {
		if d.work == work && d.err == nil && p.in(d.done) {
			all = append(all, d.done.Sub(d.began))
		}
	}
	return all
}

func mean(all []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(max(1, len(all)))
}

// waited returns how long after an outage the work that had waited for its end was done.
func (p *phase) waited(work string) (all []time.Duration) {
	for _, d := range *p.rushed {
		if d.work == work {
			all = append(all, d.done.Sub(p.from))
		}
	}
	return all
}

var columns = []string{"200", "201", "401", "429", "503", "other"}

func column(status int) string {
	if c := strconv.Itoa(status); slices.Contains(columns, c) {
		return c
	}
	return "other"
}

var number = regexp.MustCompile(`/[0-9]+`)

// report logs the simulator's requests, and the durations of work.
func (s *scenario) report() {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "phase\tprogram\toperation\t200\t201\t401\t429\t503\tother")
	for _, p := range s.phases {
		rows := map[string]map[string]int{}
		for _, r := range s.requests(p) {
			program, _, _ := strings.Cut(r.UserAgent, "/")
			row := program + "\t" + r.Method + " " + number.ReplaceAllString(strings.TrimPrefix(r.Path, "/v1"), "/{id}")
			if rows[row] == nil {
				rows[row] = map[string]int{}
			}
			rows[row][column(r.Status)]++
		}
		names := make([]string, 0, len(rows))
		for name := range rows {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(table, "\n%s\t%s", p.name, name)
			for _, c := range columns {
				fmt.Fprintf(table, "\t%d", rows[name][c])
			}
		}
	}
	fmt.Fprint(table, "\n\nphase\twork\tdone\ton average in\tat most in\tafter the outage on average")
	for _, p := range s.phases {
		for _, work := range works {
			took := s.took(p, work)
			slices.Sort(took)
			fmt.Fprintf(table, "\n%s\t%s\t%d", p.name, work, len(took))
			if len(took) > 0 {
				fmt.Fprintf(table, "\t%s\t%s", mean(took).Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
			}
			if p.rushed != nil {
				fmt.Fprintf(table, "\t%s", mean(p.waited(work)).Round(time.Millisecond))
			}
		}
	}
	_ = table.Flush()
	s.t.Logf("what the API was asked, and how long work took:\n%s", &text)
}

// check asserts the scenario's properties.
func (s *scenario) check() {
	for _, p := range s.phases {
		answers := s.answers(p)
		if p.refused {
			// An outage must not spend the budget that is needed after it.
			if refused := answers[http.StatusTooManyRequests] + answers[http.StatusServiceUnavailable] +
				answers[http.StatusUnauthorized]; refused > 200 {
				s.t.Errorf("%s: %d requests in a minute in which none could succeed", p.name, refused)
			}
			continue
		}
		for _, d := range s.deeds {
			if d.err != nil && p.rushed == nil && p.in(d.done) {
				s.t.Errorf("%s: %s work failed: %v", p.name, d.work, d.err)
				break
			}
		}
		if n := answers[http.StatusTooManyRequests]; n > 0 {
			s.t.Errorf("%s: %d requests were refused for the budget", p.name, n)
		}
		urgent, normal, background := s.took(p, urgentWork), s.took(p, normalWork), s.took(p,
			backgroundWork)
		if slowest := slices.Max(append(urgent, 0)); len(urgent) == 0 ||
			p.rushed == nil && slowest > 10*time.Second {
			s.t.Errorf("%s: %d urgent changes, the slowest took %s", p.name, len(urgent), slowest)
		}
		if len(normal) == 0 || len(background) == 0 {
			s.t.Errorf("%s: %d looks and %d looks for drift: starved", p.name, len(normal), len(background))
		}
		if p.rushed != nil {
			s.checkRecovery(p)
		}
	}
	if p := s.phases[1]; mean(s.took(p, urgentWork)) >= mean(s.took(p, normalWork)) ||
		mean(s.took(p, normalWork)) >= mean(s.took(p, backgroundWork)) {
		s.t.Errorf("%s: the more urgent didn't go first", p.name)
	}
}

// checkRecovery checks the work that waited for the end of an outage.
func (s *scenario) checkRecovery(p *phase) {
	urgent, normal, background := p.waited(urgentWork), p.waited(normalWork), p.waited(backgroundWork)
	if len(urgent) != 10 || len(normal) != 10 || len(background) != 10 {
		s.t.Errorf("after the outage %d, %d, %d of 10 were done", len(urgent), len(normal), len(background))
		return
	}
	if slowest := slices.Max(urgent); slowest > 30*time.Second {
		s.t.Errorf("an urgent change was done %s after the outage", slowest)
	}
	if mean(urgent) >= mean(normal) || mean(normal) >= mean(background) {
		s.t.Errorf("after the outage urgent work waited %s, normal %s, background %s on average", mean(urgent), mean(normal), mean(background))
	}
}
