package hcloudsim

import (
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// pricingBody is the schema's type without fields that the description has removed, and with
// floating_ip, which is deprecated but still required.
type pricingBody struct {
	schema.Pricing
	FloatingIP schema.PricingFloatingIP `json:"floating_ip"`
	PrimaryIPs []primaryIPPrices        `json:"primary_ips"`
	Traffic    *struct{}                `json:"traffic,omitempty"`
}

type primaryIPPrices struct {
	Type   string           `json:"type"`
	Prices []primaryIPPrice `json:"prices"`
}

type primaryIPPrice struct {
	Location     string       `json:"location"`
	PriceHourly  schema.Price `json:"price_hourly"`
	PriceMonthly schema.Price `json:"price_monthly"`
}

// pricing implements GET /pricing. Like the rest of the catalog it has plausible prices, not the
// real price list. Prices of types are those of the types themselves.
func (c *call) pricing() (reply, error) {
	out := pricingBody{FloatingIP: schema.PricingFloatingIP{PriceMonthly: price(3_0000)}, Pricing: schema.Pricing{
		Currency: "EUR", VATRate: "19.00",
		Image:        schema.PricingImage{PricePerGBMonth: price(110)},
		Volume:       schema.PricingVolume{PricePerGBPerMonth: price(440)},
		ServerBackup: schema.PricingServerBackup{Percentage: "20.00"},
	}}
	for _, of := range []struct {
		kind                                       string
		floatingMonth, primaryHour, primaryMonthly int
	}{
		{typeIPv4, 3_0000, 8, 5000},
		{typeIPv6, 1_0000, 0, 0},
	} {
		floating := schema.PricingFloatingIPType{Type: of.kind}
		primary := primaryIPPrices{Type: of.kind}
		for _, l := range c.catalog.locations {
			floating.Prices = append(floating.Prices, schema.PricingFloatingIPTypePrice{Location: l.Name, PriceMonthly: price(of.floatingMonth)})
			primary.Prices = append(primary.Prices, primaryIPPrice{l.Name, price(of.primaryHour), price(of.primaryMonthly)})
		}
		out.FloatingIPs, out.PrimaryIPs = append(out.FloatingIPs, floating), append(out.PrimaryIPs, primary)
	}
	for _, t := range c.catalog.serverTypes {
		out.ServerTypes = append(out.ServerTypes, schema.PricingServerType{ID: t.ID, Name: t.Name, Prices: t.Prices})
	}
	for _, t := range c.catalog.loadBalancerTypes {
		out.LoadBalancerTypes = append(out.LoadBalancerTypes, schema.PricingLoadBalancerType{ID: t.ID, Name: t.Name, Prices: t.Prices})
	}
	return ok(http.StatusOK, "pricing", out)
}
