package robot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/robot"
	"github.com/underlay-ccm/underlay/internal/sleep"
)

const (
	// firstWait and longestWait are between two looks at a vSwitch that is in process.
	firstWait, longestWait = time.Second, 10 * time.Second
	// sweepTime is how long removing may take: members are taken out first, and that takes minutes.
	sweepTime = 10 * time.Minute
)

// Leftovers are the vSwitches of all runs.
func (c *Client) Leftovers(ctx context.Context) ([]VSwitch, error) {
	all, err := c.VSwitches(ctx)
	return slices.DeleteFunc(all, func(v VSwitch) bool { return v.Run() == "" || v.Cancelled }), err
}

// Sweep removes the vSwitches of runs, by their names; without any those of this run. It returns how
// many it removed, and an error if any remain.
func (c *Client) Sweep(ctx context.Context, runs ...string) (removed int, err error) {
	if len(runs) == 0 {
		runs = []string{c.run}
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	left, err := c.Leftovers(ctx)
	for range mostLost {
		if err == nil || final(err) || sleep.For(ctx, firstWait) != nil {
			break
		}
		left, err = c.Leftovers(ctx)
	}
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, v := range left {
		if !slices.Contains(runs, v.Run()) {
			continue
		}
		c.own(v.ID)
		if err := c.remove(ctx, v.ID); err != nil {
			failed = append(failed, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(failed...)
}

// mostLost is how many requests in a row may fail while a vSwitch is removed.
const mostLost = 5

// remove takes the run's server out of a vSwitch and removes it. It waits while the vSwitch is in process,
// and tries again what got no answer.
func (c *Client) remove(ctx context.Context, id int64) error {
	lost := 0
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		gone, err := c.step(ctx, id)
		switch {
		case gone:
			return nil
		case err == nil || robot.IsCode(err, robot.CodeInProcess, robot.CodeConflict):
			lost = 0
		case final(err) || lost == mostLost:
			return err
		default:
			lost++
		}
		if err := sleep.For(ctx, wait); err != nil {
			return fmt.Errorf("removing vSwitch %d, which is still being changed: %w", id, err)
		}
	}
}

// final reports whether trying again is of no use, or not allowed.
func final(err error) bool {
	return errors.As(err, new(*LoginError)) || errors.As(err, new(*StrangersError)) ||
		robot.IsCode(err, robot.CodeRateLimit)
}

// step does what can be done now, and reports whether the vSwitch is gone.
func (c *Client) step(ctx context.Context, id int64) (gone bool, err error) {
	v, err := c.VSwitch(ctx, id)
	switch {
	case robot.IsCode(err, robot.CodeNotFound) || err == nil && v.Cancelled:
		return true, nil
	case err != nil:
		return false, err
	case len(v.Members) == 0:
		err := c.Cancel(ctx, id)
		return err == nil || robot.IsCode(err, robot.CodeNotFound), err
	}
	member := v.Members[0]
	// A client that hasn't put it in goes by the vSwitch's name: a run puts in one.
	if len(v.Members) > 1 || c.join(id, member.Server) != nil {
		return false, strangers(v)
	}
	if member.Status != Ready && member.Status != Failed {
		return false, nil
	}
	return false, c.RemoveServer(ctx, id, member.Server)
}

// StrangersError says that a vSwitch stays as it is, because somebody has put servers into it.
type StrangersError struct {
	VSwitch int64
	Servers []int64 // with the run's own, if it is in it
}

func strangers(v VSwitch) *StrangersError {
	e := &StrangersError{VSwitch: v.ID}
	for _, m := range v.Members {
		e.Servers = append(e.Servers, m.Server)
	}
	return e
}

func (e *StrangersError) Error() string {
	return fmt.Sprintf("vSwitch %d is not removed, because servers are in it that the run has not put in: "+
		"it has %s, of which one at most is the run's; take the others out, and run hcloud-sim measure clean",
		e.VSwitch, strings.Trim(fmt.Sprint(e.Servers), "[]"))
}

// Words of a member's status that both documentation and clients know.
const Ready, Failed = "ready", "failed"
