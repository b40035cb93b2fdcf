package robot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/internal/robot"
)

const (
	// sweepEvery is between two rounds of removing, which are few because the web service counts
	// requests. mostLost is how many rounds in a row may get no list.
	sweepEvery, mostLost = 10 * time.Second, 5
	// sweepTime is how long removing may take: members are taken out first, and that takes minutes.
	sweepTime = 10 * time.Minute
)

// Leftovers are the vSwitches of all runs.
func (c *Client) Leftovers(ctx context.Context) ([]VSwitch, error) {
	all, err := c.VSwitches(ctx)
	return slices.DeleteFunc(all, func(v VSwitch) bool { return v.Run() == "" || v.Cancelled }), err
}

// Sweep removes the vSwitches of runs, by their names; without any those of this run. It lists them
// and takes the next step with each until none is left, and returns how many it removed, and an
// error if any remain.
func (c *Client) Sweep(ctx context.Context, runs ...string) (removed int, err error) {
	if len(runs) == 0 {
		runs = []string{c.run}
	}
	var open []int64 // as far as it was known last
	seen, refused := map[int64]bool{}, map[int64]error{}
	var last error
	lost := 0
	err = wait.PollUntilContextTimeout(ctx, sweepEvery, sweepTime, true,
		func(ctx context.Context) (bool, error) {
			left, err := c.Leftovers(ctx)
			if err != nil {
				lost++
				last = err
				if final(err) || lost > mostLost {
					return false, err
				}
				return false, nil
			}
			open, last, lost = nil, nil, 0
			for _, v := range left {
				if !slices.Contains(runs, v.Run()) || refused[v.ID] != nil {
					continue
				}
				seen[v.ID] = true
				c.own(v.ID)
				switch gone, err := c.step(ctx, v.ID); {
				case gone:
				case final(err):
					refused[v.ID] = err
				default:
					open, last = append(open, v.ID), err
				}
			}
			return len(open) == 0, nil
		})
	if len(open) > 0 {
		err = fmt.Errorf("removing vSwitches %d, which are still being changed: %w", open, err)
	}
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		err = errors.Join(err, refused[id])
	}
	if !errors.Is(err, last) {
		err = errors.Join(err, last)
	}
	return len(seen) - len(open) - len(refused), err
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
