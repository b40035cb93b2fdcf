package robotsim

import "github.com/underlay-ccm/underlay/hcloudsim/profile"

// With returns the options with what was measured in place of what they leave zero. An option that
// is set stays: VSwitchTime keeps the measured times out, too.
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
