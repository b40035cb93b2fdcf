package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// Experiment finds out facts that are found out together.
type Experiment struct {
	Facts []measure.FactID
	// Run returns what was seen. A fact that it leaves out was not found out, and the error is
	// why. It looks at [Bench.Wants] if some of its facts take more than others.
	Run func(context.Context, *Bench) ([]measure.Observation, error)
}

// All returns every experiment, in the order in which they are done: those by the API alone, by
// packets, with a dedicated server, by Robot, and the one that looks at what the others did.
func All() []Experiment {
	of := func(run func(context.Context, *Bench) ([]measure.Observation, error),
		facts ...measure.FactID,
	) Experiment {
		return Experiment{Facts: facts, Run: run}
	}
	return []Experiment{
		of(latency, measure.Latency),
		of(rateLimit, measure.RateLimit),
		of(busy, measure.Busy),
		of(effectShows, measure.EffectShows),
		of(addressReuse, measure.AddressReuse),
		of(targetsPerServer, measure.TargetsPerServer),
		of(floatingReassign, measure.FloatingReassign),
		of(zonePrimaryIPs, measure.ZonePrimaryIPs),
		of(sourceCheck, measure.SourceCheck),
		of(privateMTU, measure.PrivateMTU),
		of(publicMTU, measure.PublicMTU),
		of(routeEffect, measure.RouteEffect),
		of(sourceIPv6, measure.SourceIPv6),
		of(proxyProtocol, measure.ProxyProtocol, measure.ProxyInChecks),
		of(unjudgedTargets, measure.UnjudgedTargets),
		of(vSwitchSubnets, measure.VSwitchSubnets),
		of(ipv6Targets, measure.IPv6Targets),
		of(acrossVSwitch,
			measure.VSwitchMTU, measure.VSwitchSource, measure.ProxyARP, measure.Neighbors),
		of(robotLatency, measure.RobotLatency),
		of(robotLogin, measure.RobotLogin),
		of(robotMembers, measure.RobotMembers),
		of(actionTimes, measure.ActionTimes),
	}
}

// Run does the experiments that the facts need, and returns an observation of each of them, in
// the order of facts. Once ctx has ended nothing more is tried.
func Run(ctx context.Context, b *Bench, facts []measure.FactID) []measure.Observation {
	return run(ctx, b, All(), facts)
}

func run(ctx context.Context, b *Bench, all []Experiment, facts []measure.FactID) []measure.Observation {
	b.wanted = facts
	seen := map[measure.FactID]measure.Observation{}
	for _, e := range all {
		if ctx.Err() != nil {
			break
		}
		if !slices.ContainsFunc(e.Facts, b.Wants) {
			continue
		}
		found, err := e.Run(ctx, b)
		for _, o := range found {
			if o = complete(o); o.Seen == "" && o.Why == "" {
				o.Why = why(ctx, err)
			}
			seen[o.Fact] = o
		}
		for _, f := range e.Facts {
			if _, known := seen[f]; !known {
				seen[f] = measure.Observation{Fact: f, Why: why(ctx, err)}
			}
			if b.Found != nil && b.Wants(f) {
				b.Found(seen[f])
			}
		}
	}
	out := make([]measure.Observation, len(facts))
	for i, f := range facts {
		o, known := seen[f]
		if !known {
			o = measure.Observation{Fact: f, Why: why(ctx, errors.New("there is no experiment for it"))}
		}
		out[i] = o
	}
	return out
}

// why says why there is no answer.
func why(ctx context.Context, err error) string {
	late := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	switch {
	case late(ctx.Err()) || late(context.Cause(ctx)):
		return "the time limit was reached before; --time-limit sets it"
	case ctx.Err() != nil:
		return "the run was interrupted before"
	case err != nil:
		return err.Error()
	}
	return "nothing was seen"
}

// complete says in the simulator's words what an observation records, if it doesn't itself.
func complete(o measure.Observation) measure.Observation {
	if o.Seen != "" || o.Record == nil {
		return o
	}
	if fact, known := measure.Of(o.Fact); known && fact.Assumed != nil {
		seen := profile.Default()
		o.Record(&seen)
		o.Seen = fact.Assumed(seen)
	}
	return o
}

// sees is what an experiment returns that sees one thing.
func sees(o measure.Observation) ([]measure.Observation, error) {
	return []measure.Observation{o}, nil
}

// unsure is an observation without an answer.
func unsure(fact measure.FactID, format string, args ...any) measure.Observation {
	return measure.Observation{Fact: fact, Why: fmt.Sprintf(format, args...)}
}
