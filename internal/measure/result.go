package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// Row is a fact with the simulated and the observed behavior, or with Err if Seen is empty.
type Row struct {
	Fact          Fact
	Assumed, Seen string
	Err           error
}

// Verdict compares the observed with the simulated behavior.
func (r Row) Verdict() string {
	switch {
	case r.Err != nil:
		return "not found out"
	case r.Fact.Quantity:
		return "measured"
	case r.Seen == r.Assumed:
		return "as assumed"
	}
	return "differs"
}

// Measure measures facts in turn and passes each result with the updated profile to found, until
// found fails or ctx ends. A fact that can't be determined keeps its value in the profile.
func (p *Project) Measure(
	ctx context.Context, facts []Fact, recorded profile.Profile,
	found func(Row, profile.Profile) error,
) error {
	assumed, err := Complete(recorded)
	if err != nil {
		return err
	}
	recorded.Version = profile.Version
	r := newRun(ctx, p)
	for _, f := range facts {
		p.progress(f.Question)
		row := Row{Fact: f, Assumed: f.Words(assumed)}
		write, err := f.find(ctx, r)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", f.ID, context.Cause(ctx))
		case err != nil:
			row.Err = err
		default:
			seen := profile.Default()
			write(&seen)
			write(&recorded)
			row.Seen = f.Words(seen)
		}
		if err := found(row, recorded); err != nil {
			return err
		}
	}
	return nil
}

// Complete fills unset values of a profile with the simulator's behavior.
func Complete(p profile.Profile) (profile.Profile, error) {
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

// run holds resources shared by facts. Each is created on first use, and its error is cached.
type run struct {
	*Project
	network  func() (*hcloud.Network, error)
	balancer func() (*hcloud.LoadBalancer, error)
	servers  [2]func() (*server, error)
	programs [2]func() (*server, error)
}

func newRun(ctx context.Context, p *Project) *run {
	r := &run{Project: p}
	r.network = sync.OnceValues(func() (*hcloud.Network, error) {
		return r.makeNetwork(ctx)
	})
	r.balancer = sync.OnceValues(func() (*hcloud.LoadBalancer, error) { return r.makeBalancer(ctx) })
	for n := range r.servers {
		r.servers[n] = sync.OnceValues(func() (*server, error) { return r.makeServer(ctx, n) })
		r.programs[n] = sync.OnceValues(func() (*server, error) { return r.ready(ctx, n) })
	}
	return r
}
