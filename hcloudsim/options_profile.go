package hcloudsim

import (
	"maps"
	"net/netip"
	"slices"
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
	if source := measured.IPv6Source; !o.IPv6Source.IsValid() && source != nil && *source != profile.Own {
		o.IPv6Source, _ = netip.ParseAddr(*source) // validated by Read
	}
	for option, is := range map[*bool]*bool{
		&o.EffectsAtOnce:         measured.EffectsAtOnce,
		&o.AddressesInTurn:       measured.AddressesInTurn,
		&o.RefuseReassign:        measured.RefuseReassign,
		&o.OneTargetPerServer:    measured.OneTargetPerServer,
		&o.RefuseIPv6Targets:     measured.RefuseIPv6Targets,
		&o.ZoneIgnoresPrimaryIPs: measured.ZoneIgnoresPrimaryIPs,
		&o.OneVSwitchSubnet:      measured.OneVSwitchSubnet,
		&o.ProxyHeaderInChecks:   measured.ProxyHeaderInChecks,
		&o.ServeUnjudged:         measured.ServeUnjudged,
	} {
		if is != nil && *is {
			*option = true
		}
	}
	return o
}

// commands returns the commands of all simulated actions.
func commands() []string {
	return []string{
		"add_route", "add_service", "add_subnet", "add_target", "add_to_placement_group",
		"apply_firewall", "assign_floating_ip", "assign_primary_ip", "attach_iso",
		"attach_to_network", "attach_volume", "change_algorithm", "change_alias_ips",
		"change_dns_ptr", "change_ip_range", "change_load_balancer_type", "change_protection",
		"change_server_type", "create_certificate", "create_image", "create_load_balancer",
		"create_server", "create_volume", "delete_load_balancer", "delete_route",
		"delete_server", "delete_service", "delete_subnet", "detach_from_network",
		"detach_iso", "detach_volume", "disable_backup", "disable_public_interface",
		"disable_rescue", "enable_backup", "enable_public_interface", "enable_rescue",
		"issue_certificate", "reboot_server", "rebuild_server", "remove_firewall",
		"remove_from_placement_group", "remove_target", "request_console", "reset_password",
		"reset_server", "resize_volume", "set_firewall_rules", "shutdown_server",
		"start_server", "stop_server", "unassign_floating_ip", "unassign_primary_ip",
		"update_service",
	}
}

// UnusedTimes returns the sorted commands in ActionTimes that no simulated action has: misspelled
// commands, and those of actions that exist only in a real cloud.
func (o Options) UnusedTimes() (unused []string) {
	for _, command := range slices.Sorted(maps.Keys(o.ActionTimes)) {
		if !slices.Contains(commands(), command) {
			unused = append(unused, command)
		}
	}
	return unused
}
