package main

import (
	"context"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/config"
)

// checkOffer checks the load balancer settings against the cloud's offer, because otherwise a
// mistake appears only with the first Service that uses it. It only checks settings that were
// given, and only once, since the offer rarely changes.
func (m *manager) checkOffer(ctx context.Context) (config.Errors, error) {
	want := m.config.LoadBalancers
	if !want.Enabled || m.offered {
		return nil, nil
	}
	var wrong config.Errors
	check := func(key, value, what string, offered []string) {
		if value != "" && len(offered) > 0 && !slices.Contains(offered, value) {
			wrong = append(wrong, m.config.Wrong(key, value, "the cloud has no such "+what,
				"use one of "+strings.Join(offered, ", "), nil))
		}
	}
	if want.Location != "" || want.NetworkZone != "" {
		locations, err := m.client.Locations(ctx)
		if err != nil {
			return nil, err
		}
		var names, zones []string
		for _, l := range locations {
			names, zones = append(names, l.Name), append(zones, l.NetworkZone)
		}
		slices.Sort(zones)
		check("loadBalancers.location", want.Location, "location", names)
		check("loadBalancers.networkZone", want.NetworkZone, "network zone", slices.Compact(zones))
	}
	if m.config.Given("loadBalancers.type") {
		types, err := m.client.LoadBalancerTypes(ctx)
		if err != nil {
			return nil, err
		}
		check("loadBalancers.type", want.Type, "load balancer type", types)
	}
	m.offered = len(wrong) == 0
	return wrong, nil
}
