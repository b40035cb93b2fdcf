package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/robot"
)

// What the web service calls a member that is being changed: documented, and seen by clients.
const inProcess, processing = "in process", "processing"

const (
	// memberTime is how long a change of a vSwitch is looked at.
	memberTime = 2 * time.Minute
	// memberLook is the time between two looks: they spare the quota.
	memberLook = 2 * time.Second
)

// robotMembers puts the user's dedicated server into a throw-away vSwitch and takes it out again, and
// looks at it meanwhile. Its own vSwitches and addresses stay as they are. Once ctx has ended the
// throw-away vSwitch is left to whoever sweeps the run, because servers cost until they are removed.
func robotMembers(ctx context.Context, b *Bench) (_ []measure.Observation, err error) {
	if b.Robot == nil {
		return nil, errNoRobot()
	}
	number, err := dedicatedNumber(ctx, b)
	if err != nil {
		return nil, err
	}
	b.say("making a vSwitch")
	defer func() {
		if ctx.Err() != nil {
			return
		}
		b.say("removing the vSwitch")
		_, left := b.Robot.Sweep(ctx)
		err = errors.Join(err, left)
	}()
	v, err := b.Robot.CreateVSwitch(ctx)
	if err != nil {
		return nil, err
	}
	m := memberWatch{bench: b, vSwitch: v.ID, server: number}
	b.say("putting the dedicated server into it")
	if err := b.Robot.AddServer(ctx, v.ID, number); err != nil {
		return nil, err
	}
	joined, err := m.until(ctx, robot.Ready)
	if err != nil {
		return nil, err
	}
	if joined {
		b.say("taking the dedicated server out of it")
		if err := b.Robot.RemoveServer(ctx, v.ID, number); err != nil {
			return nil, err
		}
		if _, err := m.until(ctx, ""); err != nil {
			return nil, err
		}
	}
	return []measure.Observation{m.observation()}, nil
}

// dedicatedNumber is that of the user's dedicated server.
func dedicatedNumber(ctx context.Context, b *Bench) (int64, error) {
	if b.Dedicated == nil {
		return 0, errors.New("no dedicated server is named that may be put into a throw-away vSwitch: " +
			"name one by --dedicated")
	}
	all, err := b.Robot.Servers(ctx)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(s robot.Server) bool { return s.Has(b.Dedicated.Address) })
	if i < 0 {
		return 0, errors.New("none of the account's dedicated servers has the address of --dedicated")
	}
	return all[i].Number, nil
}

// memberWatch looks at a member of a vSwitch.
type memberWatch struct {
	bench           *Bench
	vSwitch, server int64

	statuses []string // those on the way, each once
	took     []time.Duration
	ended    string // what else there is to say
}

// until looks until the member has a status; empty: until it is none. It reports whether it came to
// that.
func (m *memberWatch) until(ctx context.Context, want string) (reached bool, err error) {
	began := time.Now()
	looks := 0
	err = lookFor(ctx, memberTime, memberLook, func() (bool, error) {
		v, err := m.bench.Robot.VSwitch(ctx, m.vSwitch)
		if err != nil {
			return false, err
		}
		looks++
		status := v.Status(m.server)
		switch reached = status == want; {
		case reached && looks > 1: // else it was over before the first look
			m.took = append(m.took, time.Since(began))
		case status == robot.Failed:
			m.ended = "the change failed"
		case status != robot.Ready && status != "" && !slices.Contains(m.statuses, status):
			m.statuses = append(m.statuses, status)
		}
		return reached || status == robot.Failed, nil
	})
	if errors.Is(err, errLate) {
		m.ended, err = fmt.Sprintf("a change was not over after %s", memberTime), nil
	}
	return reached, err
}

func (m *memberWatch) observation() measure.Observation {
	o := measure.Observation{Fact: measure.RobotMembers, Seen: strings.Join(m.statuses, ", "), Note: m.ended}
	if len(m.took) > 0 {
		o.Note = strings.TrimPrefix(o.Note+"; changes took "+measure.Between(m.took)+", looked at every 2 seconds", "; ")
	}
	if o.Seen == "" {
		o.Why = "the changes were over before the first look; try again"
		return o
	}
	status := ""
	if len(m.statuses) == 1 {
		status = m.statuses[0]
	}
	o.Record = func(p *profile.Profile) {
		if status == inProcess || status == processing {
			p.Robot.Processing = new(status == processing)
		}
		for _, took := range m.took {
			p.Robot.VSwitchSeconds = append(p.Robot.VSwitchSeconds, took.Seconds())
		}
		slices.Sort(p.Robot.VSwitchSeconds)
	}
	return o
}
