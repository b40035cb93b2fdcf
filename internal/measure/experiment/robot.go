package experiment

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// robotPings is how many requests the median is of.
const robotPings = 7

// robotLatency times requests that read.
func robotLatency(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	if b.Robot == nil {
		return nil, errNoRobot()
	}
	b.say("asking Robot %d times", robotPings)
	var all []time.Duration
	for range robotPings {
		took, err := b.Robot.Ping(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	median := all[len(all)/2]
	return sees(measure.Observation{
		Fact: measure.RobotLatency, Seen: measure.Took(median),
		Note:   fmt.Sprintf("%d requests, %s", len(all), measure.Between(all)),
		Record: func(p *profile.Profile) { p.Robot.LatencySeconds = new(median.Seconds()) },
	})
}

func errNoRobot() error {
	return fmt.Errorf("there are no credentials of the Robot web service: set ROBOT_USER and ROBOT_PASSWORD")
}

// robotLogin fails one login. It is tried between two that are accepted: the first shows that the
// credentials are right, the second that nothing is blocked.
func robotLogin(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	if b.Robot == nil {
		return nil, errNoRobot()
	}
	if _, err := b.Robot.Ping(ctx); err != nil {
		return nil, err
	}
	b.say("failing one login at Robot")
	status, err := b.Robot.WrongLogin(ctx)
	if err != nil {
		return nil, err
	}
	if status != http.StatusUnauthorized && status != http.StatusForbidden {
		return nil, fmt.Errorf("a login that must fail was answered %d %s", status, http.StatusText(status))
	}
	note := "the address is not blocked by it"
	if _, err := b.Robot.Ping(ctx); err != nil {
		note = "afterwards: " + err.Error()
	}
	return sees(measure.Observation{
		Fact: measure.RobotLogin, Seen: strconv.Itoa(status), Note: note,
		Record: func(p *profile.Profile) { p.Robot.ForbiddenLogin = new(status == http.StatusForbidden) },
	})
}
