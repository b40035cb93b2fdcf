package hcloudsim

import (
	"cmp"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// change is what an action does. Its caller has checked the rules, knows that
// everything it holds is idle, and has put what it builds in place as pending.
type change struct {
	command string
	about   []ref  // the resources that list the action
	holds   []ref  // locked while it runs; about, if nil
	finish  func() // shows the effect; must not fail
	undo    func() // takes pending things away again if the action fails
}

// action is a change under way, or remembered.
type action struct {
	change
	id            int64
	started, ends time.Time
	done          bool
	failure       *schema.ActionError
}

// actions are sorted: those running by the time they end, all by ID.
type actions struct {
	running []*action
	all     []*action
	next    fate
}

// fate is what an injected fault has in store for the next action.
type fate struct {
	fails *schema.ActionError // what it will end with, if not nil
	lost  bool                // nobody will find it
}

// begin starts a change.
func (p *project) begin(c change) *action {
	if c.holds == nil {
		c.holds = c.about
	}
	a := &action{change: c, id: p.nextID(), started: p.now, ends: p.now.Add(p.duration(c.command))}
	next := p.actions.next
	p.actions.next = fate{}
	a.failure = next.fails
	if p.opts.EffectsAtOnce && a.failure == nil {
		a.apply()
	}
	if !next.lost {
		p.actions.remember(a, p.opts.ActionLogSize)
	}
	at, _ := slices.BinarySearchFunc(p.actions.running, a, byEnd)
	p.actions.running = slices.Insert(p.actions.running, at, a)
	p.settle()
	return a
}

// duration is how long an action of a command runs.
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

func byEnd(a, b *action) int {
	return cmp.Or(a.ends.Compare(b.ends), cmp.Compare(a.id, b.id))
}

// settle ends the actions whose time has come, in the order of their ends. What
// they do happens at that time, not when someone looks.
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
			a.apply()
		} else if a.undo != nil {
			a.undo()
		}
		a.finish, a.undo = nil, nil // let go of what they capture
	}
}

func (a *action) apply() {
	if a.finish != nil {
		a.finish()
		a.finish = nil
	}
}

// remember keeps so many actions that have ended. The API forgets them too;
// without a bound a long test would only grow.
func (as *actions) remember(a *action, most int) {
	as.all = append(as.all, a)
	if most == Unlimited || len(as.all) <= most+most/4 { // a quarter at a time keeps adding cheap
		return
	}
	surplus := len(as.all) - most
	as.all = slices.DeleteFunc(as.all, func(a *action) bool {
		surplus--
		return surplus >= 0 && a.done
	})
}

func (as *actions) get(id int64) (*action, bool) {
	i, ok := slices.BinarySearchFunc(as.all, id, func(a *action, id int64) int { return cmp.Compare(a.id, id) })
	if !ok {
		return nil, false
	}
	return as.all[i], true
}

func (a *action) isAbout(r ref) bool { return slices.Contains(a.about, r) }

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
		ID: a.id, Command: a.command, Status: a.status(),
		Started: a.started.UTC(), Progress: 100, Resources: []schema.ActionResourceReference{},
	}
	if a.done {
		finished := a.ends.UTC()
		out.Finished, out.Error = &finished, a.failure
	} else {
		out.Progress = int(100 * p.now.Sub(a.started) / a.ends.Sub(a.started))
	}
	for _, r := range a.about {
		out.Resources = append(out.Resources, schema.ActionResourceReference{ID: r.id, Type: r.kind})
	}
	return out
}
