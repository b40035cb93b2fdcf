package measure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Wanted is what a plan is made for.
type Wanted struct {
	// Only are the facts that were named; empty: all. Skip are left out.
	Only, Skip []FactID
	// What there is to find out more with.
	Inside, Dedicated, DedicatedProgram, VSwitch, Robot bool
}

// Plan is what a run does.
type Plan struct {
	// Facts are those that are tried, in order.
	Facts []FactID
	// LeftOut are those that are not.
	LeftOut []LeftOut
	// Things are made, at most.
	Things Things
}

// LeftOut is a fact that isn't tried.
type LeftOut struct {
	Fact FactID
	Why  string // a cause with its remedy, for people
}

// NewPlan plans what is wanted. It is an error if nothing remains.
func NewPlan(facts []Fact, w Wanted) (Plan, error) {
	if err := w.check(facts); err != nil {
		return Plan{}, err
	}
	var p Plan
	var chosen []Fact
	for _, f := range facts {
		if !w.wants(f.ID) {
			continue
		}
		if why := w.lacks(f); why != "" {
			p.LeftOut = append(p.LeftOut, LeftOut{f.ID, why})
			continue
		}
		chosen, p.Facts = append(chosen, f), append(p.Facts, f.ID)
	}
	if len(p.Facts) == 0 {
		return p, nothing(p.LeftOut)
	}
	p.Things = ThingsOf(chosen)
	return p, nil
}

// nothing is the error of a plan without a fact.
func nothing(left []LeftOut) error {
	if len(left) == 0 {
		return errors.New("--skip names every fact that is wanted: leave one out of it")
	}
	var why []string
	for _, l := range left {
		why = append(why, string(l.Fact)+": "+l.Why)
	}
	return fmt.Errorf("nothing can be found out: %s", strings.Join(why, "; "))
}

// check finds what can't be wanted.
func (w Wanted) check(facts []Fact) error {
	known := func(flag string, ids []FactID) error {
		for _, id := range ids {
			if !slices.ContainsFunc(facts, func(f Fact) bool { return f.ID == id }) {
				return fmt.Errorf("%s names %q, which is no fact: see hcloud-sim measure facts", flag, id)
			}
		}
		return nil
	}
	return errors.Join(known("--only", w.Only), known("--skip", w.Skip))
}

// wants reports whether a fact was asked for.
func (w Wanted) wants(id FactID) bool {
	return !slices.Contains(w.Skip, id) && (len(w.Only) == 0 || slices.Contains(w.Only, id))
}

// lacks says why a fact that is wanted can't be tried; empty: it can.
func (w Wanted) lacks(f Fact) string {
	switch n := f.Needs; {
	case (n.Dedicated || n.VSwitch) && !w.Dedicated && !w.VSwitch:
		return "only with a dedicated server and a vSwitch of yours: --dedicated, --vswitch"
	case n.Dedicated && !w.Dedicated:
		return "only with a dedicated server of yours: --dedicated"
	case n.VSwitch && !w.VSwitch:
		return "only with a vSwitch of yours that is coupled with no network: --vswitch"
	case n.Robot && !w.Robot:
		return "only with the Robot web service: set ROBOT_USER and ROBOT_PASSWORD"
	case n.Inside && !w.Inside:
		return "only without --api-only, because packets have to be sent"
	case n.Inside && n.Dedicated && !w.DedicatedProgram:
		return "only with the program in the dedicated server: --dedicated-key, --dedicated-interface"
	case n.Named && !slices.Contains(w.Only, f.ID):
		return "only if it is named: --only " + string(f.ID)
	}
	return ""
}

// ThingsOf are what finding out these facts makes: what they share once, and what each makes for
// itself. Servers and the load balancer that are shared are in the shared network.
func ThingsOf(facts []Fact) Things {
	var shared, own Things
	for _, f := range facts {
		n := f.Needs
		shared.Servers = max(shared.Servers, n.Servers)
		shared.Networks = max(shared.Networks, count(n.Network || n.Servers > 0 || n.LoadBalancer))
		shared.LoadBalancers = max(shared.LoadBalancers, count(n.LoadBalancer))
		shared.FloatingIPs = max(shared.FloatingIPs, count(n.FloatingIP))
		own = own.plus(n.Own)
	}
	return shared.plus(own)
}

func (t Things) plus(o Things) Things {
	return Things{
		Servers: t.Servers + o.Servers, Networks: t.Networks + o.Networks, LoadBalancers: t.LoadBalancers + o.LoadBalancers,
		FloatingIPs: t.FloatingIPs + o.FloatingIPs, PrimaryIPs: t.PrimaryIPs + o.PrimaryIPs,
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
