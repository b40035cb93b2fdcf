package hcloudsim

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func catalogList[T any](key string, of func(catalog) []T, identity func(T) (int64, string)) endpoint {
	return func(c *call) (reply, error) {
		query := c.request.URL.Query()
		var chosen []T
		for _, e := range of(c.catalog) {
			if _, name := identity(e); !query.Has("name") || name == query.Get("name") {
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
