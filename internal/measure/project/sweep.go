package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/sleep"
)

const (
	// sweepMost is how long removing is tried, whatever the API answers.
	sweepMost = 10 * time.Minute
	// roundLeast and roundMost bound the time between two rounds.
	roundLeast, roundMost = 500 * time.Millisecond, 5 * time.Second
	// settled is the time between the two looks that must show nothing; settledLost is it where
	// nobody knows what became of a request that makes something.
	settled, settledLost = time.Second, 10 * time.Second
	// hopelessMost is how many rounds in a row may fail for a reason that time doesn't change.
	hopelessMost = 5
)

// Removed counts what was removed.
type Removed struct {
	measure.Things
	SSHKeys int
}

// LeftBehind is the error of a sweep that didn't remove everything.
type LeftBehind struct {
	Run string
	// Clean is the command that removes them; empty: the plain one of the run.
	Clean string
	// Told: what is left has been said, so that the error only counts it.
	Told bool
	// Things are those that are still there, as far as is known.
	Things []Left
	// Err is why not even that is known for sure; nil: it is.
	Err error
}

// Left is something that wasn't removed.
type Left struct {
	Kind, Name string // for people
	ID         int64
	Why        error // nil: there was no time
	// ByHand: no other sweep removes it either.
	ByHand bool
}

// Error names everything, and what to do.
func (e *LeftBehind) Error() string {
	var b strings.Builder
	b.WriteString("not everything was removed from the project")
	switch {
	case e.Told && len(e.Things) == 1:
		b.WriteString(": 1 thing is left")
	case e.Told && len(e.Things) > 1:
		fmt.Fprintf(&b, ": %d things are left", len(e.Things))
	case !e.Told:
		for i, t := range e.Things {
			b.WriteString([]string{": ", "; "}[min(i, 1)] + t.String())
		}
	}
	if e.Err != nil {
		b.WriteString("; it can't be told what is left")
		if !e.Told {
			fmt.Fprintf(&b, ": %v", e.Err)
		}
	}
	b.WriteString("; it costs until it is removed")
	if e.Err != nil || slices.ContainsFunc(e.Things, func(l Left) bool { return !l.ByHand }) {
		b.WriteString(": run \"" + cmp.Or(e.Clean, "underlayctl measure clean --run "+e.Run) + "\"")
	}
	return b.String()
}

// Lines say what is left, and why that isn't known for sure.
func (e *LeftBehind) Lines() []string {
	var lines []string
	for _, t := range e.Things {
		lines = append(lines, t.String())
	}
	if e.Err != nil {
		lines = append(lines, strings.Split("not known for sure: "+e.Err.Error(), "\n")...)
	}
	return lines
}

// Unwrap returns every cause.
func (e *LeftBehind) Unwrap() []error {
	all := []error{e.Err}
	for _, t := range e.Things {
		all = append(all, t.Why)
	}
	return all
}

// sweep is a sweep under way.
type sweep struct {
	*Project
	// why says of each thing why it wasn't removed when that was tried last.
	why     map[ref]error
	known   map[ref]bool
	removed Removed
	// hopeless counts rounds in a row.
	hopeless int
}

// Sweep removes everything of the run, and lets nothing be made any more. It looks and removes again
// and again, until two looks one after the other have shown nothing: things can be locked, replies
// can be lost, and what was asked for last can come to be later. It ends after ten minutes, or with
// ctx; what is left then is a [LeftBehind]. So is an address that has outlived its server. What
// isn't the run's any more is spared: see [Project.Spared].
func (p *Project) Sweep(ctx context.Context) (Removed, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, urgent{}, true), sweepMost)
	defer cancel()
	p.guard.close("everything is being removed")
	s := &sweep{Project: p, why: map[ref]error{}, known: map[ref]bool{}}
	pause := roundLeast
	for quiet := 0; ; {
		err := s.look(ctx)
		left := p.guard.things()
		switch {
		case err == nil && len(left) == 0:
			quiet++
		default:
			quiet = 0
		}
		if quiet == 2 {
			return s.removed, s.awaitAddresses(ctx)
		}
		if s.isHopeless(left, err) || ctx.Err() != nil {
			return s.removed, s.leftBehind(ctx, left, err)
		}
		if quiet == 1 {
			_ = sleep.For(ctx, p.guard.settling())
			continue
		}
		s.remove(ctx, left)
		_ = sleep.For(ctx, pause)
		pause = min(2*pause, roundMost)
	}
}

// close lets nothing be made any more, and waits for what is being made: at most the time limit of
// a request.
func (g *guard) close(why string) {
	g.mu.Lock()
	g.closed = why
	g.mu.Unlock()
	g.making.Wait()
}

// settling is how long to wait before the second look.
func (g *guard) settling() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost > 0 {
		return settledLost
	}
	return settled
}

// look brings up to date what the project has of the run: by a list of each kind, and, since a list
// can lie, by a look at each thing that is known and wasn't in one. An error means that it isn't
// known for sure.
func (s *sweep) look(ctx context.Context) error {
	var errs []error
	seen := map[ref]bool{}
	for _, k := range kinds {
		things, err := s.list(ctx, k, Label+"="+s.run)
		if err != nil {
			errs = append(errs, err)
		}
		for _, t := range things {
			seen[t.ref] = true
		}
	}
	for _, t := range append(s.guard.things(), s.guard.others()...) {
		if seen[t.ref] || ctx.Err() != nil {
			continue
		}
		err := s.ask(ctx, http.MethodGet, t.path(), nil)
		if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			errs = append(errs, fmt.Errorf("looking at %s %s: %w", t.kind, t.name, err))
		}
	}
	s.count()
	return errors.Join(errs...)
}

// path is where the API has the thing.
func (t thing) path() string { return fmt.Sprintf("/%s/%d", t.kind.plural(), t.id) }

// count counts what is gone since it was known last.
func (s *sweep) count() {
	now := map[ref]bool{}
	for _, t := range s.guard.things() {
		now[t.ref] = true
	}
	for r := range s.known {
		if now[r] {
			continue
		}
		if n := count(&s.removed.Things, r.kind); n != nil {
			*n++
		} else {
			s.removed.SSHKeys++
		}
	}
	s.known = now
}

// remove asks once for the removal of each thing, in an order in which they let go of each other.
func (s *sweep) remove(ctx context.Context, things []thing) {
	for _, t := range things {
		if ctx.Err() != nil {
			return
		}
		err := s.ask(ctx, http.MethodDelete, t.path(), nil)
		switch {
		case err == nil:
			s.progress(fmt.Sprintf("removing %s %s", t.kind, t.name))
		case hcloud.IsError(err, hcloud.ErrorCodeNotFound):
		case s.why[t.ref] == nil:
			s.progress(fmt.Sprintf("%s %s can't be removed yet: %v", t.kind, t.name, err))
		}
		s.why[t.ref] = err
	}
}

// isHopeless reports whether it has been seen often enough that nothing more can be removed: the
// token may not, or each thing is protected, or in use by something that isn't the run's.
func (s *sweep) isHopeless(left []thing, err error) bool {
	hopeless := hcloud.IsError(err, hcloud.ErrorCodeUnauthorized, hcloud.ErrorCodeForbidden)
	if err == nil && len(left) > 0 {
		passes := func(t thing) bool { return !permanent(s.why[t.ref]) }
		hopeless = !slices.ContainsFunc(left, passes)
	}
	if s.hopeless++; !hopeless {
		s.hopeless = 0
	}
	return s.hopeless >= hopelessMost
}

// permanent reports whether time alone doesn't change that something can't be removed.
func permanent(err error) bool {
	return errors.Is(err, ErrRefused) || hcloud.IsError(err,
		hcloud.ErrorCodeProtected, hcloud.ErrorCodeUnauthorized, hcloud.ErrorCodeForbidden,
		tokenReadonly)
}

func (s *sweep) leftBehind(ctx context.Context, left []thing, err error) *LeftBehind {
	e := &LeftBehind{Run: s.run, Err: err}
	for _, t := range left {
		e.Things = append(e.Things, Left{Kind: t.kind.String(), Name: t.name, ID: t.id, Why: s.why[t.ref]})
	}
	if err == nil && ctx.Err() == nil {
		var outlived []Left
		outlived, e.Err = s.outlived(ctx)
		e.Things = append(e.Things, outlived...)
	}
	return e
}
