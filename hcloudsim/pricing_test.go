package hcloudsim_test

import (
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// The price list contains every type in every location where it can be ordered, with the same price
// as the type itself.
func TestPricing(t *testing.T) {
	c := client(newSim(hcloudsim.Options{}))
	prices, _, err := c.Pricing.Get(t.Context())
	noError(t, err)
	if p := prices.Volume.PerGBMonthly; p.Currency != "EUR" || p.VATRate != "19.00" || p.Gross == "" {
		t.Errorf("prices of volumes are %+v", p)
	}
	locations, err := c.Location.All(t.Context())
	noError(t, err)
	if len(prices.PrimaryIPs) != 2 || len(prices.FloatingIPs) != 2 {
		t.Fatalf("prices of %d types of primary IPs, %d of floating IPs", len(prices.PrimaryIPs), len(prices.FloatingIPs))
	}
	for _, of := range prices.PrimaryIPs {
		if len(of.Pricings) != len(locations) {
			t.Errorf("primary IPs %s have prices in %d locations", of.Type, len(of.Pricings))
		}
		for _, p := range of.Pricings {
			if p.Hourly.Gross == "" || p.Monthly.Net == "" {
				t.Errorf("primary IPs %s: %+v", of.Type, p)
			}
		}
	}
	for _, of := range prices.FloatingIPs {
		if len(of.Pricings) != len(locations) || of.Pricings[0].Monthly.Gross == "" {
			t.Errorf("floating IPs %s: %+v", of.Type, of.Pricings)
		}
	}
	types, err := c.ServerType.All(t.Context())
	noError(t, err)
	if len(prices.ServerTypes) != len(types) {
		t.Fatalf("prices of %d server types, want %d", len(prices.ServerTypes), len(types))
	}
	for i, of := range prices.ServerTypes {
		own := types[i]
		if of.ServerType.Name != own.Name || len(of.Pricings) != len(own.Pricings) ||
			of.Pricings[0].Hourly.Gross != own.Pricings[0].Hourly.Gross {
			t.Errorf("prices of %s are not those of %s itself", of.ServerType.Name, own.Name)
		}
	}
	balancers, err := c.LoadBalancerType.All(t.Context())
	noError(t, err)
	for i, of := range prices.LoadBalancerTypes {
		if own := balancers[i]; of.LoadBalancerType.Name != own.Name ||
			of.Pricings[0].Monthly.Gross != own.Pricings[0].Monthly.Gross {
			t.Errorf("prices of %s are not those of %s itself", of.LoadBalancerType.Name, own.Name)
		}
	}
}
