package hcloudsim

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// change is the effect of an action. Its caller has checked the rules and that all held resources
// are idle.
type change struct {
	command string
	about   []ref  // resources that list the action
	holds   []ref  // resources locked while it runs; about, if nil
	adds    any    // an object already in its place, which is not shown before the effect
	finish  func() // shows the effect; must not fail
	undo    func() // removes what it adds if the action fails
	instant bool   // the action ends before the reply
	// more returns the fields of the reply other than the action, which runs or has ended.
	more func(*action) map[string]any
}

// action is a running or ended change.
type action struct {
	change
	id            int64
	started, ends time.Time
	done          bool
	failure       *schema.ActionError
}

// actions hold the running actions sorted by end time, and all actions sorted by ID.
type actions struct {
	running []*action
	all     []*action
	next    fate
}

func (p *project) begin(c change) *action {
	if c.holds == nil {
		c.holds = c.about
	}
	a := &action{change: c, id: p.nextID(), started: p.now, ends: p.now}
	if !c.instant {
		a.ends = p.now.Add(p.duration(c.command))
	}
	next := p.actions.next
	p.actions.next = fate{}
	a.failure = next.fails
	if c.adds != nil {
		p.creating[c.adds] = true
	}
	if p.opts.EffectsAtOnce && a.failure == nil {
		p.apply(a)
	}
	if !next.lost {
		p.actions.remember(a, p.opts.ActionLogSize)
	}
	at, _ := slices.BinarySearchFunc(p.actions.running, a, func(a, b *action) int {
		return cmp.Or(a.ends.Compare(b.ends), cmp.Compare(a.id, b.id))
	})
	p.actions.running = slices.Insert(p.actions.running, at, a)
	p.settle()
	return a
}

func (p *project) beginAll(changes []change) []schema.Action {
	return rendered(changes, func(c change) schema.Action { return p.renderAction(p.begin(c)) })
}

func (p *project) duration(command string) time.Duration {
	if times := p.opts.ActionTimes[command]; len(times) > 0 {
		return times[p.rand.IntN(len(times))]
	}
	d := p.opts.ActionTime
	if p.opts.ActionJitter > 0 {
		d += time.Duration(p.rand.Int64N(int64(p.opts.ActionJitter)))
	}
	return d
}

// settle ends the actions that are due, in the order of their end times. Their effects happen at
// the end time, not at the time of access.
func (p *project) settle() {
	now := p.now
	defer func() { p.now = now }()
	for len(p.actions.running) > 0 && !p.actions.running[0].ends.After(now) {
		a := p.actions.running[0]
		p.actions.running = p.actions.running[1:]
		a.done = true
		p.touched = true
		p.now = a.ends
		if a.failure == nil {
			p.apply(a)
		} else if a.undo != nil {
			a.undo()
		}
		delete(p.creating, a.adds)
		a.adds, a.finish, a.undo, a.more = nil, nil, nil, nil // release captured variables
	}
}

func (p *project) apply(a *action) {
	delete(p.creating, a.adds)
	if a.finish != nil {
		a.finish()
		a.finish = nil
	}
}

// remember adds an action to the log and trims ended actions to most entries. The API drops old
// actions too; without a limit the log of a long test would grow indefinitely.
func (as *actions) remember(a *action, most int) {
	as.all = append(as.all, a)
	// Trimming a quarter at a time keeps appends cheap.
	if most == Unlimited || len(as.all) <= most+most/4 {
		return
	}
	surplus := len(as.all) - most
	as.all = slices.DeleteFunc(as.all, func(a *action) bool {
		surplus--
		return surplus >= 0 && a.done
	})
}

func (as *actions) get(id int64) (*action, bool) {
	i, known := slices.BinarySearchFunc(as.all, id, func(a *action, id int64) int {
		return cmp.Compare(a.id, id)
	})
	if !known {
		return nil, false
	}
	return as.all[i], true
}

func (a *action) isAboutKind(kind string) bool {
	return slices.ContainsFunc(a.about, func(r ref) bool { return r.kind == kind })
}

func (a *action) status() string {
	switch {
	case !a.done:
		return "running"
	case a.failure != nil:
		return "error"
	}
	return "success"
}

func (p *project) renderAction(a *action) schema.Action {
	out := schema.Action{
		ID: a.id, Command: a.command, Status: a.status(), Started: a.started.UTC(), Progress: 100,
		Resources: rendered(a.about, func(r ref) schema.ActionResourceReference {
			return schema.ActionResourceReference{ID: r.id, Type: r.kind}
		}),
	}
	if a.done {
		out.Finished, out.Error = new(a.ends.UTC()), a.failure
	} else {
		out.Progress = int(100 * p.now.Sub(a.started) / a.ends.Sub(a.started))
	}
	return out
}

// arbitraryActions is the announcement that GET /actions requires IDs.
const arbitraryActions = "https://docs.hetzner.cloud/changelog#2025-01-30-listing-arbitrary-" +
	"actions-in-the-actions-list-endpoint-is-removed"

// listActions implements GET /actions.
func (c *call) listActions() (reply, error) {
	if !c.request.URL.Query().Has("id") {
		e := newError(http.StatusGone, "deprecated_api_endpoint",
			"listing actions without their IDs was removed")
		e.Details = map[string]string{"announcement": arbitraryActions}
		return reply{}, e
	}
	return c.replyActions(func(*action) bool { return true })
}

// getAction returns an action by ID, optionally restricted to a kind or a resource.
func getAction(kind, parameter string) endpoint {
	return func(c *call) (reply, error) {
		id, err := c.pathID(parameter)
		if err != nil {
			return reply{}, err
		}
		a, known := c.actions.get(id)
		known = known && (kind == "" || a.isAboutKind(kind))
		if known && parameter != "id" {
			resource, err := c.pathID("id")
			if err != nil {
				return reply{}, err
			}
			known = slices.Contains(a.about, ref{kind, resource})
		}
		if !known {
			return reply{}, errNotFound("action", id)
		}
		return ok(http.StatusOK, "action", c.renderAction(a))
	}
}

// replyActions lists the actions that match the filter and the query. It omits unknown IDs.
func (c *call) replyActions(of func(*action) bool) (reply, error) {
	query := c.request.URL.Query()
	if err := oneOf(query, "status", "running", "success", "error"); err != nil {
		return reply{}, err
	}
	for _, id := range query["id"] {
		if !isID(id) {
			return reply{}, errInvalid("id", "'%s' is no ID", id)
		}
	}
	candidates := c.actions.all
	if query.Has("id") {
		candidates = nil
		for _, text := range query["id"] {
			id, _ := strconv.ParseInt(text, 10, 64)
			if a, known := c.actions.get(id); known && !slices.Contains(candidates, a) {
				candidates = append(candidates, a)
			}
		}
	}
	var chosen []*action
	for _, a := range candidates {
		if of(a) && allows(query["status"], a.status()) {
			chosen = append(chosen, a)
		}
	}
	finished := func(a *action) time.Time {
		if a.done {
			return a.ends
		}
		return time.Time{}
	}
	return list(c, "actions", chosen, order[*action]{
		"id":       func(a, b *action) int { return cmp.Compare(a.id, b.id) },
		"command":  func(a, b *action) int { return strings.Compare(a.command, b.command) },
		"status":   func(a, b *action) int { return strings.Compare(a.status(), b.status()) },
		"started":  func(a, b *action) int { return a.started.Compare(b.started) },
		"finished": func(a, b *action) int { return finished(a).Compare(finished(b)) },
	}, c.renderAction)
}

// Actions returns the action log, oldest first.
func (s *Simulator) Actions() []schema.Action {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.actions.all, p.renderAction)
}
