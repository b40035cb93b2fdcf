package profile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
)

// Values of [Cloud.Busy].
const (
	Conflict = "conflict"
	Locked   = "locked"
)

// secondsMost is the maximum of any measured time: one hour.
const secondsMost = 3600

// mtuLeast is the size that every IPv4 host must accept (RFC 791); mtuMost is the maximum.
const mtuLeast, mtuMost = 576, 65535

var command = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// check returns an error for every value that can't be a measurement.
func (p Profile) check() error {
	var errs []error
	refuse := func(field string, value any, must string) {
		errs = append(errs, fmt.Errorf("%s: %v: must be %s", field, value, must))
	}
	seconds := func(field string, least float64, values ...float64) {
		for _, v := range values {
			if math.IsNaN(v) || v < least || v > secondsMost {
				refuse(field, v, fmt.Sprintf("seconds from %v to %d", least, secondsMost))
			}
		}
	}
	number := func(field string, value *int, least, most int) {
		if value != nil && (*value < least || *value > most) {
			refuse(field, *value, fmt.Sprintf("from %d to %d", least, most))
		}
	}
	if p.Version != Version {
		refuse("version", p.Version,
			fmt.Sprintf("%d; measure again with this version of hcloud-sim", Version))
	}
	c := p.Cloud
	if c.Busy != nil && *c.Busy != Conflict && *c.Busy != Locked {
		refuse("cloud.busy", fmt.Sprintf("%q", *c.Busy), Conflict+" or "+Locked)
	}
	for _, name := range slices.Sorted(maps.Keys(c.ActionSeconds)) {
		field := "cloud.action_seconds." + name
		switch times := c.ActionSeconds[name]; {
		case !command.MatchString(name):
			refuse("cloud.action_seconds", fmt.Sprintf("%q", name),
				"the command of an action, such as add_route")
		case len(times) == 0:
			refuse(field, "[]", "at least one time; remove the command if none was measured")
		default:
			seconds(field, 0, times...)
		}
	}
	seconds("cloud.latency_seconds", 0, *cmp.Or(c.LatencySeconds, new(float64)))
	number("cloud.rate_limit", c.RateLimit, 1, math.MaxInt32)
	if s := c.IPv6Source; s != nil && *s != Own {
		a, err := netip.ParseAddr(*s)
		if err != nil || !a.Is6() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() {
			refuse("cloud.ipv6_source", fmt.Sprintf("%q", *s), Own+" or an IPv6 address")
		}
	}
	n := p.Network
	number("network.private_mtu", n.PrivateMTU, mtuLeast, mtuMost)
	number("network.public_mtu", n.PublicMTU, mtuLeast, mtuMost)
	number("network.vswitch_mtu", n.VSwitchMTU, mtuLeast, mtuMost)
	seconds("network.route_seconds", -secondsMost, n.RouteSeconds...)
	number("network.proxy_protocol", n.ProxyProtocol, 1, 2)
	number("network.neighbors", n.Neighbors, 0, math.MaxInt32)
	seconds("robot.vswitch_seconds", 0, p.Robot.VSwitchSeconds...)
	seconds("robot.latency_seconds", 0, *cmp.Or(p.Robot.LatencySeconds, new(float64)))
	return errors.Join(errs...)
}

// canonical returns a copy of p with sorted lists of times. It does not modify what p points to.
func (p Profile) canonical() Profile {
	sorted := func(seconds []float64) []float64 { return slices.Sorted(slices.Values(seconds)) }
	p.Cloud.ActionSeconds = maps.Clone(p.Cloud.ActionSeconds)
	for name, seconds := range p.Cloud.ActionSeconds {
		p.Cloud.ActionSeconds[name] = sorted(seconds)
	}
	p.Network.RouteSeconds = sorted(p.Network.RouteSeconds)
	p.Robot.VSwitchSeconds = sorted(p.Robot.VSwitchSeconds)
	return p
}
