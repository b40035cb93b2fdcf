package hcloudsim

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

const (
	perPageDefault = 25
	perPageMost    = 50
)

// order maps the fields by which a listing can be sorted to their comparisons.
type order[T any] map[string]func(a, b T) int

// list replies with one page of items, sorted as requested.
func list[T, J any](c *call, key string, items []T, by order[T], render func(T) J) (reply, error) {
	if err := sortAsRequested(c, items, by); err != nil {
		return reply{}, err
	}
	if c.Fault.EmptyList {
		items = nil
	}
	p, err := pageOf(c.request.URL.Query(), len(items))
	if err != nil {
		return reply{}, err
	}
	page := rendered(items[p.from:p.to], render)
	if c.Fault.PartialList {
		page = page[:len(page)/2]
	}
	meta := map[string]any{"pagination": p}
	return reply{status: http.StatusOK, body: map[string]any{key: page, "meta": meta}}, nil
}

// sortAsRequested applies the sort parameters; the first has the highest precedence.
func sortAsRequested[T any](c *call, items []T, by order[T]) error {
	keys := c.request.URL.Query()["sort"]
	for _, key := range slices.Backward(keys) { // stable sorts, lowest precedence first
		field, direction, _ := strings.Cut(key, ":")
		compare, ok := by[field]
		if !ok || (direction != "" && direction != "asc" && direction != "desc") {
			return errInvalid("sort", "'%s' is no sort order", key)
		}
		slices.SortStableFunc(items, func(a, b T) int {
			if direction == "desc" {
				a, b = b, a
			}
			return compare(a, b)
		})
	}
	return nil
}

// selected filters by the name and label_selector parameters. The caller owns the slice.
func selected[R resource](c *call, t *table[R]) ([]R, error) {
	query := c.request.URL.Query()
	selector, err := labels.Parse(query.Get("label_selector"))
	if err != nil {
		return nil, errInvalid("label_selector", "%s", err)
	}
	var out []R
	for _, r := range t.rows {
		b := r.common()
		if allows(query["name"], b.name) && selector.Matches(labels.Set(b.labels)) {
			out = append(out, r)
		}
	}
	return out, nil
}

// oneOf returns an error unless a filter has known values alone.
func oneOf(query url.Values, name string, known ...string) error {
	for _, value := range query[name] {
		if !slices.Contains(known, value) {
			return errInvalid(name, "'%s' is not one of %s", value, strings.Join(known, ", "))
		}
	}
	return nil
}

// allows reports whether the filter is absent or contains the value.
func allows(filter []string, value string) bool {
	return len(filter) == 0 || slices.Contains(filter, value)
}

// page is the pagination of one reply, as in meta.
type page struct {
	Page         int  `json:"page"`
	PerPage      int  `json:"per_page"`
	PreviousPage *int `json:"previous_page"`
	NextPage     *int `json:"next_page"`
	LastPage     int  `json:"last_page"`
	TotalEntries int  `json:"total_entries"`

	from, to int
}

func pageOf(query url.Values, total int) (page, error) {
	number, err := positive(query, "page", 1)
	if err != nil {
		return page{}, err
	}
	per, err := positive(query, "per_page", perPageDefault)
	if err != nil {
		return page{}, err
	}
	per = min(per, perPageMost)
	p := page{Page: number, PerPage: per, TotalEntries: total, LastPage: max(1, (total+per-1)/per)}
	if number > 1 {
		p.PreviousPage = new(min(number-1, p.LastPage))
	}
	if number < p.LastPage {
		p.NextPage = new(number + 1)
	}
	p.from, p.to = total, total
	if number <= p.LastPage { // also prevents an overflow of the products below
		p.from, p.to = min((number-1)*per, total), min(number*per, total)
	}
	return p, nil
}

func positive(query url.Values, name string, otherwise int) (int, error) {
	if !query.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(query.Get(name))
	if err != nil || n < 1 {
		return 0, errInvalid(name, "must be a number from 1")
	}
	return n, nil
}
