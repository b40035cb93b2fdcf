package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

type robotConfig struct {
	listen       string
	options      robotsim.Options
	passwordFile string
	blocked      string
}

func (c *robotConfig) flags(f *pflag.FlagSet) {
	o := &c.options
	option := func(value *bool, name, usage string) { f.BoolVar(value, name, *value, usage) }
	f.StringVar(&c.listen, "robot-listen", "",
		"address of the Robot web service, such as 127.0.0.1:8472; empty: none")
	f.StringVar(&o.User, "robot-user", "", "the only user of the Robot web service; empty: any")
	f.StringVar(&o.Password, "robot-password", "", "the user's password")
	f.StringVar(&c.passwordFile, "robot-password-file", "", "file with the user's password")
	f.DurationVar(&o.VSwitchTime, "robot-vswitch-time", 0,
		"how long a vSwitch is in process after a change")
	f.DurationVar(&o.FailoverTime, "robot-failover-time", 0, "how long it takes until a failover "+
		"address is routed elsewhere, and the request is answered")
	f.StringToIntVar(&o.Quotas, "robot-quota", nil, "requests per hour of an operation, like "+
		"'GET /server=10', -1: no limit; may be given again")
	option(&o.FixedHours, "robot-fixed-hours",
		"count requests from one full hour to the next, instead of each for an hour")
	option(&o.RefusedCount, "robot-refused-count", "requests refused for the quota count toward it")
	option(&o.MaxRequests, "robot-max-requests", "name the field of such a refusal max_requests, "+
		"as clients have seen it, instead of max_request, as documented")
	option(&o.ForbiddenLogin, "robot-forbidden-login", "reply to a failed login with 403, as "+
		"clients have seen it, instead of 401, as documented")
	f.StringVar(&c.blocked, "robot-blocked", "unauthorized",
		"response to a blocked address: unauthorized, forbidden or dropped")
	option(&o.Processing, "robot-processing", "name the status of a member that is being changed "+
		"processing, as clients have seen it, instead of in process, as documented")
}

func (c *robotConfig) check() error {
	errs := []error{c.setBlocked(), c.setPassword()}
	for name, most := range c.options.Quotas {
		is := func(op robotsim.Operation) bool { return op.Name() == name }
		if !slices.ContainsFunc(robotsim.Operations(), is) {
			errs = append(errs, fmt.Errorf("--robot-quota=%s=%d: there is no such operation; the "+
				"documentation of hcloud-sim lists them, like 'GET /server/{server}'", name, most))
		}
		errs = append(errs, checkLimit("robot-quota="+name, most))
	}
	return errors.Join(errs...)
}

func (c *robotConfig) setBlocked() error {
	switch c.blocked {
	case "unauthorized":
		c.options.Blocked = robotsim.BlockedUnauthorized
	case "forbidden":
		c.options.Blocked = robotsim.BlockedForbidden
	case "dropped":
		c.options.Blocked = robotsim.BlockedDropped
	default:
		return fmt.Errorf("--robot-blocked=%s: must be unauthorized, forbidden or dropped", c.blocked)
	}
	return nil
}

func (c *robotConfig) setPassword() (err error) {
	o := &c.options
	if o.Password, err = secretOf("robot-password", o.Password, c.passwordFile); err != nil {
		return err
	}
	if (o.User == "") != (o.Password == "") {
		return errors.New("--robot-user and its password: give both, or none to accept any login")
	}
	return nil
}

type robotSeed struct {
	Servers   []robotsim.ServerSeed   `json:"servers"`
	VSwitches []robotsim.VSwitchSeed  `json:"vswitches"`
	Failovers []robotsim.FailoverSeed `json:"failovers"`
}

func (s robotSeed) plant(sim *robotsim.Simulator) error {
	for _, seed := range s.Servers {
		if _, err := sim.CreateServer(seed); err != nil {
			return fmt.Errorf("seed: robot: %w", err)
		}
	}
	for _, seed := range s.VSwitches {
		if _, err := sim.CreateVSwitch(seed); err != nil {
			return fmt.Errorf("seed: robot: %w", err)
		}
	}
	for _, seed := range s.Failovers {
		if err := sim.CreateFailover(seed); err != nil {
			return fmt.Errorf("seed: robot: %w", err)
		}
	}
	return nil
}
