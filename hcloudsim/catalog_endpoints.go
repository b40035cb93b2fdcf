package hcloudsim

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func catalogOperations() []operation {
	datacenterRows := catalogRows("datacenters", "datacenter", catalog.datacenters, datacenterKey)
	list := datacenterRows[0].do
	datacenterRows[0].do = func(c *call) (reply, error) {
		out, err := list(c)
		if body, ok := out.body.(map[string]any); ok {
			body["recommendation"] = 1 // required, though deprecated
		}
		return out, err
	}
	return slices.Concat(
		catalogRows("locations", "location",
			func(c catalog) []schema.Location { return c.locations }, locationKey),
		datacenterRows,
		catalogRows("server_types", "server_type",
			func(c catalog) []schema.ServerType { return c.serverTypes }, serverTypeKey),
		catalogRows("load_balancer_types", "load_balancer_type",
			func(c catalog) []schema.LoadBalancerType { return c.loadBalancerTypes },
			loadBalancerTypeKey),
		catalogRows("isos", "iso", catalog.isos, isoKey),
		[]operation{
			{"GET", "/pricing", (*call).pricing},
			{"GET", "/zones", empty("zones")},
			{"GET", "/storage_boxes", empty("storage_boxes")},
		},
	)
}

// empty lists resources of which a simulated project has none.
func empty(key string) endpoint {
	return func(c *call) (reply, error) {
		return list(c, key, []int{}, order[int]{}, func(int) int { return 0 })
	}
}

// catalogRows returns the operations that list entries of the catalog and get one.
func catalogRows[T any](
	plural, name string, of func(catalog) []T, identity func(T) (int64, string),
) []operation {
	id := func(e T) int64 { id, _ := identity(e); return id }
	title := func(e T) string { _, name := identity(e); return name }
	by := order[T]{
		"id":   func(a, b T) int { return cmp.Compare(id(a), id(b)) },
		"name": func(a, b T) int { return strings.Compare(title(a), title(b)) },
	}
	return []operation{
		{"GET", "/" + plural, func(c *call) (reply, error) {
			chosen := slices.DeleteFunc(slices.Clone(of(c.catalog)), func(e T) bool {
				return !allows(c.request.URL.Query()["name"], title(e)) || !ofArchitecture(c, e)
			})
			return list(c, plural, chosen, by, func(e T) T { return e })
		}},
		{"GET", "/" + plural + "/{id}", func(c *call) (reply, error) {
			key, err := c.pathID("id")
			if err != nil {
				return reply{}, err
			}
			e, known := lookup(of(c.catalog), schema.IDOrName{ID: key}, identity)
			if !known {
				return reply{}, errNotFound(name, key)
			}
			return ok(http.StatusOK, name, e)
		}},
	}
}

// ofArchitecture reports whether an ISO matches the filter; other entries have none.
func ofArchitecture(c *call, entry any) bool {
	iso, isISO := entry.(schema.ISO)
	return !isISO || allows(c.request.URL.Query()["architecture"], *iso.Architecture)
}

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
	out := pricingBody{
		FloatingIP: schema.PricingFloatingIP{PriceMonthly: price(3_0000)},
		Pricing: schema.Pricing{
			Currency: "EUR", VATRate: "19.00",
			Image:        schema.PricingImage{PricePerGBMonth: price(110)},
			Volume:       schema.PricingVolume{PricePerGBPerMonth: price(440)},
			ServerBackup: schema.PricingServerBackup{Percentage: "20.00"},
			ServerTypes: rendered(c.catalog.serverTypes,
				func(t schema.ServerType) schema.PricingServerType {
					return schema.PricingServerType{ID: t.ID, Name: t.Name, Prices: t.Prices}
				}),
			LoadBalancerTypes: rendered(c.catalog.loadBalancerTypes,
				func(t schema.LoadBalancerType) schema.PricingLoadBalancerType {
					return schema.PricingLoadBalancerType{ID: t.ID, Name: t.Name, Prices: t.Prices}
				}),
		},
	}
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
			floating.Prices = append(floating.Prices, schema.PricingFloatingIPTypePrice{
				Location: l.Name, PriceMonthly: price(of.floatingMonth),
			})
			primary.Prices = append(primary.Prices,
				primaryIPPrice{l.Name, price(of.primaryHour), price(of.primaryMonthly)})
		}
		out.FloatingIPs = append(out.FloatingIPs, floating)
		out.PrimaryIPs = append(out.PrimaryIPs, primary)
	}
	return ok(http.StatusOK, "pricing", out)
}
