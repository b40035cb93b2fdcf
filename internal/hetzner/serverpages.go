package hetzner

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// pageSize is the most that the API puts on a page.
const pageSize = 50

// errCut means that a page held fewer servers than it must.
var errCut = errors.New("a page of the server list is incomplete")

// allServers reads every page and returns the servers by ID. It reads the last
// page first. Servers are sorted by ID, and a new server gets a higher ID than
// all others, so a creation only appends to the list, and a deletion only moves
// servers toward pages that are still to be read. Hence whatever is created and
// deleted meanwhile, a server that exists during the whole read is in the result.
func (c *Client) allServers(ctx context.Context) ([]*hcloud.Server, error) {
	all, err := c.readServerPages(ctx)
	if err != nil {
		c.lastPage.Store(1) // the page to begin with may be what is wrong
		return nil, err
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *hcloud.Server) int { return cmp.Compare(a.ID, b.ID) }), nil
}

func (c *Client) readServerPages(ctx context.Context) (map[int64]*hcloud.Server, error) {
	all := map[int64]*hcloud.Server{}
	// Begin where the list ended last time; the answer tells where it ends now.
	// Servers that are created later are not asked for.
	page := max(1, int(c.lastPage.Load()))
	found, last, err := c.serverPage(ctx, page)
	for err == nil && (last > page || last < page && len(found) == 0) {
		page = last
		found, last, err = c.serverPage(ctx, page)
	}
	end := page
	for ; err == nil; found, _, err = c.serverPage(ctx, page) {
		if page < end && len(found) < pageSize {
			// Either servers of this page were deleted just now, or the answer is
			// not the whole page. The next read tells.
			return nil, errCut
		}
		for _, s := range found {
			all[s.ID] = s
		}
		if page--; page == 0 {
			c.lastPage.Store(int64(end))
			return all, nil
		}
	}
	return nil, err
}

// serverPage reads one page, and tells which page is the last.
func (c *Client) serverPage(ctx context.Context, page int) (found []*hcloud.Server, last int, err error) {
	found, resp, err := c.api.Server.List(ctx, hcloud.ServerListOpts{
		ListOpts: hcloud.ListOpts{Page: page, PerPage: pageSize},
		Sort:     []string{"id:asc"},
	})
	if err != nil {
		return nil, 0, err
	}
	p := resp.Meta.Pagination
	if p == nil {
		return found, page, nil
	}
	// The API may leave out the numbers that describe the whole list.
	if p.TotalEntries > 0 && len(found) != min(pageSize, max(0, p.TotalEntries-(page-1)*pageSize)) {
		return nil, 0, errCut
	}
	return found, cmp.Or(p.LastPage, p.NextPage, page), nil
}
