package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

type robotConfig struct {
	listen       string
	options      robotsim.Options
	passwordFile string
	blocked      string
	state        string
}

func (c *robotConfig) flags(flags *pflag.FlagSet) {
	o := &c.options
	flags.StringVar(&c.listen, "robot-listen", "", "address of the Robot web service, such as 127.0.0.1:8472; empty: none")
	flags.StringVar(&o.User, "robot-user", "", "the only user of the Robot web service; empty: any")
	flags.StringVar(&o.Password, "robot-password", "", "the user's password")
	flags.StringVar(&c.passwordFile, "robot-password-file", "", "file with the user's password")
	flags.StringVar(&c.state, "robot-state", "", "JSON file with a snapshot of the Robot account to start from, see /_sim/robot/state; instead of robot in --seed")
	flags.DurationVar(&o.VSwitchTime, "robot-vswitch-time", 0, "how long a vSwitch is in process after a change")
	flags.DurationVar(&o.FailoverTime, "robot-failover-time", 0, "how long it takes until a failover address is routed elsewhere, and the request is answered")
	flags.StringToIntVar(&o.Quotas, "robot-quota", nil, "requests per hour of an operation, like 'GET /server=10', -1: no limit; may be given again")
	flags.BoolVar(&o.FixedHours, "robot-fixed-hours", false, "count requests from one full hour to the next, instead of each for an hour")
	flags.BoolVar(&o.RefusedCount, "robot-refused-count", false, "requests refused for the quota count toward it")
	flags.BoolVar(&o.MaxRequests, "robot-max-requests", false, "name the field of such a refusal max_requests, as clients have seen it, instead of max_request, as documented")
	flags.BoolVar(&o.ForbiddenLogin, "robot-forbidden-login", o.ForbiddenLogin, "reply to a failed login with 403, as clients have seen it, instead of 401, as documented")
	flags.IntVar(&o.FailedLogins, "robot-failed-logins", 3, "how many failed logins block an address; -1: no limit")
	flags.DurationVar(&o.BlockTime, "robot-block-time", 0, "how long an address is blocked; 0: 10 minutes")
	flags.StringVar(&c.blocked, "robot-blocked", "unauthorized", "response to a blocked address: unauthorized, forbidden or dropped")
	flags.BoolVar(&o.Processing, "robot-processing", o.Processing, "name the status of a member that is being changed processing, as clients have seen it, instead of in process, as documented")
	for _, limit := range c.limits() {
		flags.IntVar(limit.value, limit.flag, limit.otherwise, limit.of+"; -1: no limit")
	}
}

func (c *robotConfig) limits() []limit {
	o := &c.options
	return []limit{
		{"robot-vswitch-limit", "vSwitches", &o.VSwitchLimit, robotsim.Unlimited},
		{"robot-vswitch-server-limit", "servers per vSwitch", &o.VSwitchServerLimit, 100},
		{"robot-server-vswitch-limit", "vSwitches per server", &o.ServerVSwitchLimit, 5},
	}
}

func (c *robotConfig) check(seeded bool) error {
	errs := []error{c.setBlocked(), c.setPassword(), checkLimit("robot-failed-logins", c.options.FailedLogins)}
	for _, limit := range c.limits() {
		errs = append(errs, checkLimit(limit.flag, *limit.value))
	}
	for name, most := range c.options.Quotas {
		if !slices.ContainsFunc(robotsim.Operations(), func(op robotsim.Operation) bool { return op.Name() == name }) {
			errs = append(errs, fmt.Errorf("--robot-quota=%s=%d: there is no such operation; the documentation of hcloud-sim lists them, like 'GET /server/{server}'", name, most))
		}
		errs = append(errs, checkLimit("robot-quota="+name, most))
	}
	if seeded && c.state != "" {
		errs = append(errs, errors.New("--robot-state and robot in --seed: give only one of them"))
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

func (c *robotConfig) setPassword() error {
	if c.passwordFile != "" {
		if c.options.Password != "" {
			return errors.New("--robot-password and --robot-password-file: give only one of them")
		}
		content, err := os.ReadFile(c.passwordFile)
		if err != nil {
			return fmt.Errorf("--robot-password-file: %w", err)
		}
		c.options.Password = strings.TrimSpace(string(content))
	}
	if (c.options.User == "") != (c.options.Password == "") {
		return errors.New("--robot-user and its password: give both, or none to let everybody in")
	}
	return nil
}

func (c *robotConfig) simulate(cloud *hcloudsim.Simulator, seed robotSeed, logger *slog.Logger, onRequest func(robotsim.Request)) (*robotsim.Simulator, error) {
	c.options.CloudSubnets, c.options.OnRequest = robotsim.Coupled(cloud), onRequest
	sim := robotsim.New(c.options)
	if err := seed.plant(sim); err != nil {
		return nil, err
	}
	if c.state != "" {
		content, err := os.ReadFile(c.state)
		if err == nil {
			err = sim.Restore(content)
		}
		if err != nil {
			return nil, fmt.Errorf("--robot-state: %w", err)
		}
	}
	if c.listen != "" && c.options.User == "" {
		logger.Warn("every user of the Robot web service is accepted; set --robot-user and --robot-password-file to check them")
	}
	return sim, nil
}

type robotSeed struct {
	Servers   []robotsim.ServerSeed   `json:"servers"`
	VSwitches []robotsim.VSwitchSeed  `json:"vswitches"`
	Failovers []robotsim.FailoverSeed `json:"failovers"`
}

func (s robotSeed) empty() bool { return len(s.Servers)+len(s.VSwitches)+len(s.Failovers) == 0 }

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
