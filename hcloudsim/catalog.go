package hcloudsim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// The catalog is constant and equal for all projects. Names are those in use in autumn 2026. The
// sizes of cpx12 to cpx62, cx23 and cx33 were compared with a published copy of the real catalog;
// other sizes, IDs of types, and the locations of types were not. Of the types that can no longer
// be ordered, it has those that running clusters still use (cx22, cx32, cx42, and in Europe cpx11
// to cpx51). Prices are plausible, not the real price list.

type catalog struct {
	locations         []schema.Location
	serverTypes       []schema.ServerType
	loadBalancerTypes []schema.LoadBalancerType
}

func newCatalog(limits map[string]TypeLimits) catalog {
	where := locations()
	return catalog{locations: where, serverTypes: serverTypes(where), loadBalancerTypes: loadBalancerTypes(where, limits)}
}

func locations() []schema.Location {
	return []schema.Location{
		{ID: 1, Name: "fsn1", Description: "Falkenstein DC Park 1", Country: "DE", City: "Falkenstein", Latitude: 50.47612, Longitude: 12.370071, NetworkZone: "eu-central"},
		{ID: 2, Name: "nbg1", Description: "Nuremberg DC Park 1", Country: "DE", City: "Nuremberg", Latitude: 49.452102, Longitude: 11.076665, NetworkZone: "eu-central"},
		{ID: 3, Name: "hel1", Description: "Helsinki DC Park 1", Country: "FI", City: "Helsinki", Latitude: 60.169855, Longitude: 24.938379, NetworkZone: "eu-central"},
		{ID: 4, Name: "ash", Description: "Ashburn, VA", Country: "US", City: "Ashburn, VA", Latitude: 39.045821, Longitude: -77.487073, NetworkZone: "us-east"},
		{ID: 5, Name: "hil", Description: "Hillsboro, OR", Country: "US", City: "Hillsboro, OR", Latitude: 45.54222, Longitude: -122.951924, NetworkZone: "us-west"},
		{ID: 6, Name: "sin", Description: "Singapore", Country: "SG", City: "Singapore", Latitude: 1.283333, Longitude: 103.833333, NetworkZone: "ap-southeast"},
	}
}

func serverTypes(where []schema.Location) []schema.ServerType {
	type figures struct {
		id           int64
		name         string
		cores        int
		memory       float32
		disk         int
		cpu, arch    string
		cents        int
		category     string
		europeanOnly bool
	}
	rows := []figures{
		{22, "cpx11", 2, 2, 40, "shared", "x86", 499, "Shared vCPU", false},
		{23, "cpx21", 3, 4, 80, "shared", "x86", 849, "Shared vCPU", false},
		{24, "cpx31", 4, 8, 160, "shared", "x86", 1559, "Shared vCPU", false},
		{25, "cpx41", 8, 16, 240, "shared", "x86", 2899, "Shared vCPU", false},
		{26, "cpx51", 16, 32, 360, "shared", "x86", 6349, "Shared vCPU", false},
		{108, "cpx12", 1, 2, 40, "shared", "x86", 449, "Shared vCPU", false},
		{109, "cpx22", 2, 4, 80, "shared", "x86", 699, "Shared vCPU", false},
		{110, "cpx32", 4, 8, 160, "shared", "x86", 1199, "Shared vCPU", false},
		{111, "cpx42", 8, 16, 320, "shared", "x86", 2199, "Shared vCPU", false},
		{112, "cpx52", 12, 24, 480, "shared", "x86", 3149, "Shared vCPU", false},
		{113, "cpx62", 16, 32, 640, "shared", "x86", 4299, "Shared vCPU", false},
		{45, "cax11", 2, 4, 40, "shared", "arm", 379, "Shared vCPU", true},
		{93, "cax21", 4, 8, 80, "shared", "arm", 649, "Shared vCPU", true},
		{94, "cax31", 8, 16, 160, "shared", "arm", 1249, "Shared vCPU", true},
		{95, "cax41", 16, 32, 320, "shared", "arm", 2699, "Shared vCPU", true},
		{104, "cx22", 2, 4, 40, "shared", "x86", 379, "Shared vCPU", true},
		{105, "cx32", 4, 8, 80, "shared", "x86", 680, "Shared vCPU", true},
		{106, "cx42", 8, 16, 160, "shared", "x86", 1640, "Shared vCPU", true},
		{114, "cx23", 2, 4, 40, "shared", "x86", 349, "Shared vCPU", true},
		{115, "cx33", 4, 8, 80, "shared", "x86", 599, "Shared vCPU", true},
		{116, "cx43", 8, 16, 160, "shared", "x86", 999, "Shared vCPU", true},
		{117, "cx53", 16, 32, 320, "shared", "x86", 1899, "Shared vCPU", true},
		{96, "ccx13", 2, 8, 80, "dedicated", "x86", 1249, "Dedicated vCPU", false},
		{97, "ccx23", 4, 16, 160, "dedicated", "x86", 2449, "Dedicated vCPU", false},
		{98, "ccx33", 8, 32, 240, "dedicated", "x86", 4849, "Dedicated vCPU", false},
		{99, "ccx43", 16, 64, 360, "dedicated", "x86", 9649, "Dedicated vCPU", false},
		{100, "ccx53", 32, 128, 600, "dedicated", "x86", 19249, "Dedicated vCPU", false},
		{101, "ccx63", 48, 192, 960, "dedicated", "x86", 28849, "Dedicated vCPU", false},
	}
	types := make([]schema.ServerType, 0, len(rows))
	for _, row := range rows {
		t := schema.ServerType{
			ID: row.id, Name: row.name, Description: row.name, Category: row.category,
			Cores: row.cores, Memory: row.memory, Disk: row.disk,
			StorageType: "local", CPUType: row.cpu, Architecture: row.arch,
		}
		for _, l := range where {
			if row.europeanOnly && l.NetworkZone != "eu-central" {
				continue
			}
			t.Locations = append(t.Locations, schema.ServerTypeLocation{ID: l.ID, Name: l.Name, Recommended: true, Available: true})
			t.Prices = append(t.Prices, schema.PricingServerTypePrice{
				Location: l.Name, PriceHourly: price(row.cents * 100 / 600), PriceMonthly: price(row.cents * 100),
				IncludedTraffic: 20 << 40, PricePerTBTraffic: price(1_0000),
			})
		}
		types = append(types, t)
	}
	return types
}

func loadBalancerTypes(where []schema.Location, limits map[string]TypeLimits) []schema.LoadBalancerType {
	rows := []struct {
		name                                         string
		services, targets, certificates, connections int
		cents                                        int
	}{
		{"lb11", 5, 25, 10, 20_000, 539},
		{"lb21", 15, 75, 25, 40_000, 1640},
		{"lb31", 30, 150, 50, 80_000, 3249},
	}
	types := make([]schema.LoadBalancerType, 0, len(rows))
	for i, row := range rows {
		t := schema.LoadBalancerType{
			ID: int64(i + 1), Name: row.name, Description: row.name,
			MaxServices:             cmp.Or(limits[row.name].Services, row.services),
			MaxTargets:              cmp.Or(limits[row.name].Targets, row.targets),
			MaxAssignedCertificates: cmp.Or(limits[row.name].Certificates, row.certificates),
			MaxConnections:          row.connections,
		}
		for _, l := range where {
			t.Prices = append(t.Prices, schema.PricingLoadBalancerTypePrice{
				Location: l.Name, PriceHourly: price(row.cents * 100 / 600), PriceMonthly: price(row.cents * 100),
				IncludedTraffic: 20 << 40, PricePerTBTraffic: price(1_0000),
			})
		}
		types = append(types, t)
	}
	return types
}

// price renders ten-thousandths in the API's format: strings, net and with 19 % VAT.
func price(net int) schema.Price {
	text := func(n int) string { return fmt.Sprintf("%d.%04d", n/1_0000, n%1_0000) }
	return schema.Price{Net: text(net), Gross: text(net * 119 / 100)}
}

func lookup[T any](entries []T, key schema.IDOrName, identity func(T) (int64, string)) (T, bool) {
	for _, e := range entries {
		id, name := identity(e)
		if (key.ID != 0 && id == key.ID) || (key.ID == 0 && name == key.Name) {
			return e, true
		}
	}
	var none T
	return none, false
}

func locationKey(l schema.Location) (int64, string)                 { return l.ID, l.Name }
func serverTypeKey(t schema.ServerType) (int64, string)             { return t.ID, t.Name }
func loadBalancerTypeKey(t schema.LoadBalancerType) (int64, string) { return t.ID, t.Name }

func (c catalog) zoneExists(zone string) bool {
	return slices.ContainsFunc(c.locations, func(l schema.Location) bool { return l.NetworkZone == zone })
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

func datacenterKey(d datacenter) (int64, string) { return d.ID, d.Name }
func isoKey(i schema.ISO) (int64, string)        { return i.ID, i.Name }

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
	for _, name := range []string{
		"debian-13.1.0-amd64", "debian-13.1.0-arm64", "talos-1.11-amd64", "talos-1.11-arm64",
	} {
		arch := archX86
		if strings.HasSuffix(name, "-arm64") {
			arch = archARM
		}
		all = append(all, schema.ISO{
			ID: int64(len(all) + 1), Name: name + ".iso", Description: name,
			Type: "public", Architecture: &arch,
		})
	}
	return all
}
