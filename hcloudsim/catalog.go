package hcloudsim

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// catalogFile is constant and equal for all projects. Names are those in use in autumn 2026. The
// sizes of cpx12 to cpx62, cx23 and cx33 were compared with a published copy of the real catalog;
// other sizes, IDs of types, and the locations of types were not. Of the types that can no longer
// be ordered, it has those that running clusters still use (cx22, cx32, cx42, and in Europe cpx11
// to cpx51). Prices are plausible, not the real price list.
//
//go:embed catalog.json
var catalogFile []byte

type catalog struct {
	locations         []schema.Location
	serverTypes       []schema.ServerType
	loadBalancerTypes []schema.LoadBalancerType
}

func newCatalog() (c catalog) {
	var file struct {
		Locations   []schema.Location `json:"locations"`
		ServerTypes []struct {
			schema.ServerType
			Cents int `json:"cents"` // a month
		} `json:"server_types"`
		LoadBalancerTypes []struct {
			schema.LoadBalancerType
			Cents int `json:"cents"`
		} `json:"load_balancer_types"`
	}
	if err := json.Unmarshal(catalogFile, &file); err != nil {
		panic(fmt.Sprintf("hcloudsim: parsing the catalog: %v", err)) // it is a constant
	}
	c.locations = file.Locations
	for _, row := range file.ServerTypes {
		t := row.ServerType
		t.Description, t.StorageType, t.Architecture = t.Name, "local", archX86
		t.Category, t.CPUType = "Shared vCPU", "shared"
		arm, dedicated := strings.HasPrefix(t.Name, "cax"), strings.HasPrefix(t.Name, "ccx")
		if arm {
			t.Architecture = archARM
		}
		if dedicated {
			t.Category, t.CPUType = "Dedicated vCPU", "dedicated"
		}
		european := arm || strings.HasPrefix(t.Name, "cx")
		for _, l := range c.locations {
			if european && l.NetworkZone != "eu-central" {
				continue
			}
			at := schema.ServerTypeLocation{ID: l.ID, Name: l.Name, Recommended: true, Available: true}
			t.Locations = append(t.Locations, at)
			t.Prices = append(t.Prices, priceIn(l, row.Cents))
		}
		c.serverTypes = append(c.serverTypes, t)
	}
	for _, row := range file.LoadBalancerTypes {
		t := row.LoadBalancerType
		t.Description = t.Name
		for _, l := range c.locations {
			price := schema.PricingLoadBalancerTypePrice(priceIn(l, row.Cents))
			t.Prices = append(t.Prices, price)
		}
		c.loadBalancerTypes = append(c.loadBalancerTypes, t)
	}
	return c
}

// priceIn returns the price of a type in a location.
func priceIn(l schema.Location, cents int) schema.PricingServerTypePrice {
	return schema.PricingServerTypePrice{
		Location: l.Name, PriceHourly: price(cents * 100 / 600), PriceMonthly: price(cents * 100),
		IncludedTraffic: 20 << 40, PricePerTBTraffic: price(1_0000),
	}
}

// price renders ten-thousandths in the API's format: strings, net and with 19 % VAT.
func price(net int) schema.Price {
	text := func(n int) string { return fmt.Sprintf("%d.%04d", n/1_0000, n%1_0000) }
	return schema.Price{Net: text(net), Gross: text(net * 119 / 100)}
}

func lookup[T any](entries []T, key schema.IDOrName, identity func(T) (int64, string)) (T, bool) {
	i := slices.IndexFunc(entries, func(e T) bool {
		id, name := identity(e)
		return (key.ID != 0 && id == key.ID) || (key.ID == 0 && name == key.Name)
	})
	if i < 0 {
		var none T
		return none, false
	}
	return entries[i], true
}

func locationKey(l schema.Location) (int64, string)                 { return l.ID, l.Name }
func serverTypeKey(t schema.ServerType) (int64, string)             { return t.ID, t.Name }
func loadBalancerTypeKey(t schema.LoadBalancerType) (int64, string) { return t.ID, t.Name }
func datacenterKey(d datacenter) (int64, string)                    { return d.ID, d.Name }
func isoKey(i schema.ISO) (int64, string)                           { return i.ID, i.Name }

// location returns the location that a field of a request names.
func (c catalog) location(field string, key schema.IDOrName) (schema.Location, error) {
	l, known := lookup(c.locations, key, locationKey)
	if !known {
		return l, errInvalid(field, "location does not exist")
	}
	return l, nil
}

// site returns the location of a new resource, and the server that it is for, if any. Requests
// have exactly one of both.
func (p *project) site(location *schema.IDOrName, id *int64) (schema.Location, *server, error) {
	if (location == nil) == (id == nil) {
		return schema.Location{}, nil, errInvalid("location",
			"exactly one of a location and a server is required")
	}
	if location != nil {
		l, err := p.catalog.location("location", *location)
		return l, nil, err
	}
	s, err := must(&p.servers, kindServer, *id)
	if err != nil {
		return schema.Location{}, nil, err
	}
	return s.location, s, nil
}

func (c catalog) zoneExists(zone string) bool {
	return slices.ContainsFunc(c.locations, func(l schema.Location) bool {
		return l.NetworkZone == zone
	})
}

// offered reports whether servers of a type can be created in a location.
func offered(t schema.ServerType, l schema.Location) bool {
	return slices.ContainsFunc(t.Locations, func(at schema.ServerTypeLocation) bool {
		return at.Name == l.Name
	})
}

// datacenter is deprecated in the API, and in the schema, so no other resource refers to one.
type datacenter struct {
	ID          int64              `json:"id"`
	Name        string             `json:"name"`
	Description string             `json:"description"`
	Location    schema.Location    `json:"location"`
	ServerTypes map[string][]int64 `json:"server_types"`
}

// datacenters returns one for each location, with the names of real ones.
func (c catalog) datacenters() (all []datacenter) {
	names := []string{"fsn1-dc14", "nbg1-dc3", "hel1-dc2", "ash-dc1", "hil-dc1", "sin-dc1"}
	for i, name := range names {
		l := c.locations[i]
		types := []int64{}
		for _, t := range c.serverTypes {
			if offered(t, l) {
				types = append(types, t.ID)
			}
		}
		all = append(all, datacenter{l.ID, name, l.Description, l, map[string][]int64{
			"supported": types, "available": types, "available_for_migration": types,
		}})
	}
	return all
}

// isos returns a few of the public ISOs, for both architectures.
func (catalog) isos() (all []schema.ISO) {
	for _, name := range []string{"debian-13.1.0", "talos-1.11"} {
		for suffix, arch := range []string{archX86, archARM} {
			name := name + []string{"-amd64", "-arm64"}[suffix]
			all = append(all, schema.ISO{
				ID: int64(len(all) + 1), Name: name + ".iso", Description: name,
				Type: "public", Architecture: &arch,
			})
		}
	}
	return all
}
