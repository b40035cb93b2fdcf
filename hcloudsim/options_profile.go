package hcloudsim

import (
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// With returns the options with measured values in the zero fields. Options that are set take
// precedence: ActionTime also disables the measured action times.
func (o Options) With(measured profile.Cloud) Options {
	if o.Busy == BusyConflict && measured.Busy != nil && *measured.Busy == profile.Locked {
		o.Busy = BusyLocked
	}
	if o.ActionTime == 0 && o.ActionTimes == nil && len(measured.ActionSeconds) > 0 {
		o.ActionTimes = map[string][]time.Duration{}
		for command, seconds := range measured.ActionSeconds {
			o.ActionTimes[command] = profile.Durations(seconds)
		}
	}
	if o.Latency == 0 && measured.LatencySeconds != nil {
		o.Latency = profile.Duration(*measured.LatencySeconds)
	}
	if o.RateLimit == 0 && measured.RateLimit != nil {
		o.RateLimit = *measured.RateLimit
	}
	if source := measured.IPv6Source; !o.IPv6Source.IsValid() && source != nil {
		o.IPv6Source, _ = netip.ParseAddr(*source) // validated by Read; invalid for profile.Own
	}
	for option, is := range map[*bool]*bool{
		&o.EffectsAtOnce:       measured.EffectsAtOnce,
		&o.RefuseReassign:      measured.RefuseReassign,
		&o.OneTargetPerServer:  measured.OneTargetPerServer,
		&o.ProxyHeaderInChecks: measured.ProxyHeaderInChecks,
		&o.ServeUnjudged:       measured.ServeUnjudged,
	} {
		if is != nil && *is {
			*option = true
		}
	}
	return o
}
