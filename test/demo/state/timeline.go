package state

import "time"

// Event is a fact that became true, or no longer is.
type Event struct {
	Subject string
	What    string
	Detail  string
	// Since is the time from the subject's start: when the machine joined or its server was
	// deleted, when the Service was created.
	Since time.Duration
	// Over: the fact is no longer true.
	Over bool
}

type key struct{ subject, what string }

// Timeline records since when each fact is true.
type Timeline struct {
	last    time.Time
	starts  map[string]time.Time
	have    []Fact
	reached map[key]time.Duration
}

// NewTimeline returns an empty one.
func NewTimeline() *Timeline {
	return &Timeline{starts: map[string]time.Time{}, reached: map[key]time.Duration{}}
}

// Observe receives all facts that are true now and returns the changes: first those that ended,
// then those that began, both in the order of the facts.
//
// Observers are not synchronized: a time before the latest counts as the latest.
func (t *Timeline) Observe(now time.Time, facts []Fact) []Event {
	if now.Before(t.last) {
		now = t.last
	}
	t.last = now
	events := t.endings(now, facts)
	for _, f := range facts {
		if holds(t.have, f.Subject, f.What) {
			continue
		}
		if _, started := t.starts[f.Subject]; f.Starts || !started {
			t.starts[f.Subject] = now
		}
		since := now.Sub(t.starts[f.Subject])
		if _, before := t.Reached(f.Subject, f.What); !before {
			t.reached[key{f.Subject, f.What}] = since
		}
		events = append(events, Event{Subject: f.Subject, What: f.What, Detail: f.Detail, Since: since})
	}
	t.have = facts
	return events
}

func (t *Timeline) endings(now time.Time, facts []Fact) []Event {
	var events []Event
	for _, f := range t.have {
		if holds(facts, f.Subject, f.What) {
			continue
		}
		if f.Ends {
			t.starts[f.Subject] = now
		}
		if f.End != "" {
			events = append(events, Event{
				Subject: f.Subject, What: f.End, Since: now.Sub(t.starts[f.Subject]), Over: true,
			})
		}
	}
	return events
}

// Restart counts a subject's time from now.
func (t *Timeline) Restart(subject string, now time.Time) { t.starts[subject] = now }

// Reached returns when a fact first became true, counted from its subject's start.
func (t *Timeline) Reached(subject, what string) (time.Duration, bool) {
	since, ok := t.reached[key{subject, what}]
	return since, ok
}
