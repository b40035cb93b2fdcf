package robotsim

import "github.com/underlay-ccm/underlay/hcloudsim/profile"

// With returns the options with measured values in the zero fields. Options that are set take
// precedence: VSwitchTime also disables the measured VSwitchTimes.
func (o Options) With(measured profile.Robot) Options {
	if o.VSwitchTime == 0 && o.VSwitchTimes == nil {
		o.VSwitchTimes = profile.Durations(measured.VSwitchSeconds)
	}
	if o.Latency == 0 && measured.LatencySeconds != nil {
		o.Latency = profile.Duration(*measured.LatencySeconds)
	}
	o.ForbiddenLogin = o.ForbiddenLogin || measured.ForbiddenLogin != nil && *measured.ForbiddenLogin
	o.Processing = o.Processing || measured.Processing != nil && *measured.Processing
	return o
}
