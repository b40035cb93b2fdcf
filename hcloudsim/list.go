package hcloudsim

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	perPageDefault = 25
	perPageMost    = 50
)

// order maps the fields by which a listing can be sorted to their comparisons.
type order[T any] map[string]func(a, b T) int

// list replies with one page of items, sorted as requested.
func list[T, J any](c *call, key string, items []T, by order[T], render func(T) J) (reply, error) {
	if err := sortAsAsked(c, items, by); err != nil {
		return reply{}, err
	}
	if c.fault.EmptyList {
		items = nil
	}
	p, err := pageOf(c.request.URL.Query(), len(items))
	if err != nil {
		return reply{}, err
	}
	rendered := make([]J, 0, p.PerPage)
	for _, item := range items[p.from:p.to] {
		rendered = append(rendered, render(item))
	}
	if c.fault.PartialList {
		rendered = rendered[:len(rendered)/2]
	}
	type meta struct {
		Pagination page `json:"pagination"`
	}
	return reply{
		status: http.StatusOK,
		body:   map[string]any{key: rendered, "meta": meta{p}},
		link:   p.link(c.request),
	}, nil
}

// sortAsAsked applies the sort parameters; the first has the highest precedence.
func sortAsAsked[T any](c *call, items []T, by order[T]) error {
	asked := c.request.URL.Query()["sort"]
	for _, key := range slices.Backward(asked) { // stable sorts, lowest precedence first
		field, direction, _ := strings.Cut(key, ":")
		compare, ok := by[field]
		if !ok || (direction != "" && direction != "asc" && direction != "desc") {
			return errInvalid("sort", "'%s' is no sort order", key)
		}
		if direction == "desc" {
			slices.SortStableFunc(items, func(a, b T) int { return compare(b, a) })
		} else {
			slices.SortStableFunc(items, compare)
		}
	}
	return nil
}

func byBase[R resource]() order[R] {
	return order[R]{
		"id":      func(a, b R) int { return cmp.Compare(a.common().id, b.common().id) },
		"name":    func(a, b R) int { return cmp.Compare(a.common().name, b.common().name) },
		"created": func(a, b R) int { return a.common().created.Compare(b.common().created) },
	}
}

// selected filters by the name and label_selector parameters. The caller owns the slice.
func selected[R resource](c *call, t *table[R]) ([]R, error) {
	query := c.request.URL.Query()
	sel, err := parseSelector(query.Get("label_selector"))
	if err != nil {
		return nil, errInvalid("label_selector", "%s", err)
	}
	var out []R
	for _, r := range t.rows {
		b := r.common()
		if (!query.Has("name") || b.name == query.Get("name")) && sel.matches(b.labels) {
			out = append(out, r)
		}
	}
	return out, nil
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
		previous := min(number-1, p.LastPage)
		p.PreviousPage = &previous
	}
	if number < p.LastPage {
		next := number + 1
		p.NextPage = &next
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

func (p page) link(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.URL.Scheme == "https" {
		scheme = "https"
	}
	to := func(rel string, number int) string {
		query := r.URL.Query()
		query.Set("page", strconv.Itoa(number))
		query.Set("per_page", strconv.Itoa(p.PerPage))
		return fmt.Sprintf(`<%s://%s/v1%s?%s>; rel="%s"`, scheme, r.Host, r.URL.Path, query.Encode(), rel)
	}
	var links []string
	if p.PreviousPage != nil {
		links = append(links, to("prev", *p.PreviousPage))
	}
	if p.NextPage != nil {
		links = append(links, to("next", *p.NextPage))
	}
	return strings.Join(append(links, to("last", p.LastPage)), ", ")
}
