package hetzner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

const (
	// pageSize is the API's maximum number of objects per page.
	pageSize = 50
	// mostPages bounds a list, so that an endless one doesn't use up the project's request
	// budget. 50,000 objects are far more than a project may have.
	mostPages = 1000
)

// byID returns the sort order that list requires.
func byID() []string { return []string{"id:asc"} }

var (
	errCut = errors.New("a page of the list is incomplete")
	// errPaging means that pages contradict each other; a retry doesn't help.
	errPaging = errors.New("the API's pages contradict each other")
)

// lister reads one page of a list that is sorted by ID.
type lister[T any] func(context.Context, hcloud.ListOpts) ([]T, *hcloud.Response, error)

// list reads every page of a list and returns the converted objects sorted by ID, never a part of
// them. It reads the last page first: a new object gets the highest ID, so a creation only appends
// to the list, and a deletion only moves objects to pages that are still to be read. The result
// therefore has every object that exists during the whole read. what names the list in errors.
func list[T, R any](
	ctx context.Context, c *Client, what string, id func(T) int64, page lister[T], convert func(T) R,
) ([]R, error) {
	var found []T
	err := retry(ctx, read, func(ctx context.Context) (err error) {
		start := 1
		if last, ok := c.lastPages.Load(what); ok { // this only saves requests
			start = last.(int)
		}
		var last int
		p := pages[T]{id: id, read: page}
		found, last, err = p.all(ctx, start)
		if err != nil || last == 1 {
			// The starting page may be the cause; most lists are short, and each Service has its own.
			c.lastPages.Delete(what)
		} else {
			c.lastPages.Store(what, last)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", what, err)
	}
	converted := make([]R, len(found))
	for i, object := range found {
		converted[i] = convert(object)
	}
	return converted, nil
}

type pages[T any] struct {
	id   func(T) int64
	read lister[T]
}

// all reads the pages, starting with the last page of the previous read, and returns the current
// last page. It doesn't request objects created after that.
func (p pages[T]) all(ctx context.Context, page int) (sorted []T, end int, err error) {
	found, last, err := p.page(ctx, page)
	if err == nil && last < page && len(found) == 0 {
		page = last
		found, last, err = p.page(ctx, page)
	}
	for err == nil && last > page {
		if last > mostPages {
			return nil, 0, fmt.Errorf("%w: %d pages are more than %d", errPaging, last, mostPages)
		}
		before := found
		page = last
		found, last, err = p.page(ctx, page)
		if len(before) > 0 && len(found) > 0 && p.id(found[0]) <= p.id(before[len(before)-1]) {
			return nil, 0, fmt.Errorf("%w: page %d repeats an object of an earlier page", errPaging, page)
		}
	}
	all := map[int64]T{}
	for end = page; err == nil; found, _, err = p.page(ctx, page) {
		if page < end && len(found) < pageSize {
			// Objects were deleted, or the page is incomplete: the next read distinguishes them.
			return nil, 0, errCut
		}
		for _, object := range found {
			all[p.id(object)] = object
		}
		if page--; page == 0 {
			return slices.SortedFunc(maps.Values(all), p.compare), end, nil
		}
	}
	return nil, 0, err
}

func (p pages[T]) compare(a, b T) int { return cmp.Compare(p.id(a), p.id(b)) }

// page reads one page, and returns the number of the last page, or of a later page than this.
func (p pages[T]) page(ctx context.Context, page int) (found []T, last int, err error) {
	found, resp, err := p.read(ctx, hcloud.ListOpts{Page: page, PerPage: pageSize})
	if err != nil {
		return nil, 0, err
	}
	at := resp.Meta.Pagination
	switch {
	case at == nil: // every list has it: a response such as {} is not an empty list
		return nil, 0, errors.New("the response is no list")
	case at.NextPage != 0 && at.NextPage <= page:
		return nil, 0, fmt.Errorf("%w: after page %d comes page %d", errPaging, page, at.NextPage)
	case at.NextPage != 0 && len(found) < pageSize,
		// The API may omit the numbers that describe the whole list.
		at.TotalEntries > 0 && len(found) != min(pageSize, max(0, at.TotalEntries-(page-1)*pageSize)):
		return nil, 0, errCut
	}
	last = max(1, cmp.Or(at.LastPage, at.NextPage, page))
	if max(last, page) > 1 && !slices.IsSortedFunc(found, p.compare) {
		return nil, 0, fmt.Errorf("%w: page %d is not sorted by ID", errPaging, page)
	}
	return found, last, nil
}
