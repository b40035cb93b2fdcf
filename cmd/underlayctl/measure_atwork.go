package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// longestLimit is the most that --time-limit takes.
const longestLimit = 6 * time.Hour

// earlierRun is one that has something in the project.
type earlierRun struct {
	Run string `json:"run"`
	Age string `json:"age"`
	// MayBeAtWork: nothing but its age tells whether it has ended.
	MayBeAtWork bool `json:"mayBeAtWork"`
}

func (l leftover) earlier(now time.Time) earlierRun {
	return earlierRun{Run: l.Run, Age: since(l.since(), now), MayBeAtWork: l.mayBeAtWork(now)}
}

// since is when the first of it was made. Of a vSwitch only the name of its run tells; zero: not
// even that.
func (l leftover) since() time.Time {
	if !l.Since.IsZero() {
		return l.Since
	}
	const began = "20060102-1504"
	t, err := time.Parse(began, l.Run[:min(len(l.Run), len(began))])
	if err != nil {
		return time.Time{}
	}
	return t
}

// mayBeAtWork reports whether a run can still be under way. Once it has made something, it ends
// within its time limit, and the time for removing.
func (l leftover) mayBeAtWork(now time.Time) bool {
	t := l.since()
	return t.IsZero() || now.Sub(t) <= longestLimit+cleaning
}

// agreed are those that are removed by a --yes, which names none, and busy those that aren't since
// they may be at work.
func agreed(left []leftover, now time.Time) (removed, busy []leftover) {
	for _, l := range left {
		if l.mayBeAtWork(now) {
			busy = append(busy, l)
		} else {
			removed = append(removed, l)
		}
	}
	return removed, busy
}

// notCleaned is an error if runs were left alone. command makes that which cleans after one.
func notCleaned(busy []leftover, now time.Time, command func(run string) string) error {
	var said []string
	for _, l := range busy {
		said = append(said, fmt.Sprintf("run %s (%s old) may be at work, so that it was left alone: if it isn't, %s",
			l.Run, since(l.since(), now), command(l.Run)))
	}
	if len(said) == 0 {
		return nil
	}
	return errors.New(strings.Join(said, "; "))
}

// said is a line of the plan.
func (e earlierRun) said() string {
	if e.MayBeAtWork {
		return "Run " + e.Run + " (" + e.Age + " old) has things in the project, and may be at work. If it isn't, underlayctl measure clean --run " + e.Run + " removes them."
	}
	return "Run " + e.Run + " (" + e.Age + " old) has left something: see underlayctl measure clean."
}

// since is an age; an unknown one has no text.
func since(t, now time.Time) string {
	if t.IsZero() {
		return none
	}
	return duration.HumanDuration(max(now.Sub(t), 0))
}
