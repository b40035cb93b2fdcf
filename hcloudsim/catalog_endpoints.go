package hcloudsim

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
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

func catalogRows[T any](
	plural, name string, of func(catalog) []T, identity func(T) (int64, string),
) []operation {
	return []operation{
		{"GET", "/" + plural, catalogList(plural, of, identity)},
		{"GET", "/" + plural + "/{id}", catalogGet(name, of, identity)},
	}
}

// empty lists resources of which a simulated project has none.
func empty(key string) endpoint {
	return func(c *call) (reply, error) {
		return list(c, key, []int{}, order[int]{}, func(int) int { return 0 })
	}
}

func catalogList[T any](key string, of func(catalog) []T, identity func(T) (int64, string)) endpoint {
	return func(c *call) (reply, error) {
		query := c.request.URL.Query()
		var chosen []T
		for _, e := range of(c.catalog) {
			if _, name := identity(e); asked(query["name"], name) && ofArchitecture(c, e) {
				chosen = append(chosen, e)
			}
		}
		return list(c, key, chosen, order[T]{
			"id": func(a, b T) int {
				left, _ := identity(a)
				right, _ := identity(b)
				return cmp.Compare(left, right)
			},
			"name": func(a, b T) int {
				_, left := identity(a)
				_, right := identity(b)
				return strings.Compare(left, right)
			},
		}, func(e T) T { return e })
	}
}

// ofArchitecture reports whether an ISO matches the filter; other entries have none.
func ofArchitecture(c *call, entry any) bool {
	iso, isISO := entry.(schema.ISO)
	return !isISO || asked(c.request.URL.Query()["architecture"], *iso.Architecture)
}

func catalogGet[T any](key string, of func(catalog) []T, identity func(T) (int64, string)) endpoint {
	return func(c *call) (reply, error) {
		id, err := c.pathID("id")
		if err != nil {
			return reply{}, err
		}
		e, known := lookup(of(c.catalog), schema.IDOrName{ID: id}, identity)
		if !known {
			return reply{}, errNotFound(key, id)
		}
		return ok(http.StatusOK, key, e)
	}
}

func (c catalog) location(text string) (schema.Location, error) {
	key := schema.IDOrName{Name: text}
	if id, err := strconv.ParseInt(text, 10, 64); err == nil {
		key = schema.IDOrName{ID: id}
	}
	l, known := lookup(c.locations, key, locationKey)
	if !known {
		return l, errInvalid("location", "location '%s' does not exist", text)
	}
	return l, nil
}
