package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/underlay-ccm/underlay/test/demo/screen"
	"github.com/underlay-ccm/underlay/test/demo/state"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

var errLate = errors.New("not in time")

// demo is a running cluster and its observed state. A single goroutine uses it.
type demo struct {
	*terminal
	cluster  *cluster.Cluster
	manager  *cluster.Manager
	observer *observer
	state    *state.State
	timeline *state.Timeline
	// reader is the path of underlayctl.
	reader string
	// holding: the scenario is over, and the user makes all changes.
	holding bool
}

// play runs the steps until one fails, and returns their results. They are the second and following
// of count.
func (d *demo) play(ctx context.Context, steps []step, count int) []screen.Result {
	var results []screen.Result
	for i, s := range steps {
		r := screen.Result{Name: s.name, Title: s.title, Skipped: true}
		if failed := i > 0 && (results[i-1].Err != nil || results[i-1].Skipped); !failed {
			d.print(d.Heading(i+2, count, s.title))
			r = d.run(ctx, s)
		}
		results = append(results, r)
	}
	return results
}

// run runs a step and waits until the state meets the step's expectation.
func (d *demo) run(ctx context.Context, s step) screen.Result {
	if s.note != "" {
		d.print(d.Note(s.note))
	}
	began := time.Now()
	d.timeline.Restart(service, began)
	done := make(chan error, 1)
	// With ctx, which doesn't end with the step: kubelets keep running.
	go func() { done <- s.do(ctx, d.cluster) }()

	waiting, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("%w: it may take %s", errLate, s.limit))
	defer cancel()
	var missing []string
	err := d.follow(waiting, done, func(acted bool) (bool, error) {
		if s.want.Books {
			if err := d.observer.count(d.state); err != nil {
				return false, err
			}
		}
		missing = d.state.Missing(d.timeline, s.want)
		d.wait(d.Status(time.Since(began), missing, d.width))
		return acted && len(missing) == 0, nil
	})
	r := screen.Result{Name: s.name, Title: s.title, Took: time.Since(began), Err: err}
	if err == nil {
		d.print(d.Held(r))
	} else if errors.Is(err, errLate) {
		r.Missing = missing
	}
	return r
}

// follow prints changes of the state until enough returns true. It calls enough after each poll,
// with whether done has received a value; nil: it has from the start.
func (d *demo) follow(
	ctx context.Context, done <-chan error, enough func(acted bool) (bool, error),
) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	acted := done == nil
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.manager.Done():
			return d.manager.Failure(d.manager.Died())
		case err := <-done:
			if err != nil {
				return err
			}
			acted = true
		case c := <-d.observer.changes:
			c.apply(d.state)
			if err := d.printChanges(c.at); err != nil {
				return err
			}
		case now := <-tick.C:
			if err := d.printChanges(now); err != nil {
				return err
			}
			if end, err := enough(acted); end || err != nil {
				return err
			}
		}
	}
}

// printChanges also reads the cloud, and prints the changes.
func (d *demo) printChanges(now time.Time) error {
	if err := d.observer.look(d.state); err != nil {
		return err
	}
	for _, e := range d.timeline.Observe(now, d.state.Facts()) {
		if d.holding {
			d.print(d.EventAt(now, e))
		} else {
			d.print(d.Event(e))
		}
	}
	return nil
}
