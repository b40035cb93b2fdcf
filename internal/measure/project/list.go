package project

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure"
)

// pageSize is the largest that the API has, pagesMost more than any project fills.
const pageSize, pagesMost = 50, 200

// list shows every resource of a kind that a selector of labels chooses. An error means that it
// isn't the whole.
func (p *Project) list(ctx context.Context, k kind, selector string) ([]thing, error) {
	var all []thing
	for page := 1; page != 0; {
		if page > pagesMost {
			return nil, fmt.Errorf("listing each %s: the pages have no end", k)
		}
		things, next, total, err := p.page(ctx, k, selector, page)
		if err != nil {
			return nil, err
		}
		all, page = append(all, things...), next
		if page == 0 && total >= 0 && len(all) < total {
			return nil, fmt.Errorf("listing each %s: %d of %d were listed", k, len(all), total)
		}
	}
	return all, nil
}

// page is one page of a list, the number of the next, or 0, and how many resources there are on all
// pages together; -1: the API doesn't tell.
func (p *Project) page(
	ctx context.Context, k kind, selector string, number int,
) (things []thing, next, total int, err error) {
	query := url.Values{
		"label_selector": {selector},
		"page":           {strconv.Itoa(number)}, "per_page": {strconv.Itoa(pageSize)},
	}
	var reply map[string]json.RawMessage
	if err := p.ask(ctx, http.MethodGet, "/"+k.plural()+"?"+query.Encode(), &reply); err != nil {
		return nil, 0, 0, fmt.Errorf("listing each %s: %w", k, err)
	}
	var rows []json.RawMessage
	if err := json.Unmarshal(reply[k.plural()], &rows); err != nil {
		return nil, 0, 0, fmt.Errorf("listing each %s: the reply has no %s", k, k.plural())
	}
	for _, row := range rows {
		if t, is := parse(k, row); is {
			things = append(things, t)
		}
	}
	meta, err := readPagination(reply)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("listing each %s: %w", k, err)
	}
	total = -1
	if meta.Total != nil {
		total = *meta.Total
	}
	return things, meta.Next, total, nil
}

// pagination is what a page says of the others.
type pagination struct {
	Next  int  `json:"next_page"` // 0: this is the last
	Total *int `json:"total_entries"`
}

func readPagination(reply map[string]json.RawMessage) (pagination, error) {
	var meta struct {
		Pagination pagination `json:"pagination"`
	}
	if text, has := reply["meta"]; has {
		if err := json.Unmarshal(text, &meta); err != nil {
			return pagination{}, fmt.Errorf("reading its pagination: %w", err)
		}
	}
	return meta.Pagination, nil
}

// ask sends a request without a body.
func (p *Project) ask(ctx context.Context, method, path string, into any) error {
	r, err := p.client.NewRequest(ctx, method, path, nil)
	if err != nil {
		return err
	}
	_, err = p.client.Do(r, into)
	return err
}

// Existing counts what is in the project beside what runs have made.
func (p *Project) Existing(ctx context.Context) (measure.Things, error) {
	var counts measure.Things
	for _, k := range kinds {
		n := count(&counts, k)
		if n == nil {
			continue
		}
		things, next, total, err := p.page(ctx, k, "!"+Label, 1)
		switch {
		case err != nil:
			return measure.Things{}, err
		case total >= 0:
			*n = total
		case next == 0:
			*n = len(things)
		default:
			if things, err = p.list(ctx, k, "!"+Label); err != nil {
				return measure.Things{}, err
			}
			*n = len(things)
		}
	}
	return counts, nil
}

// Leftover is what a run has left in the project, or has made and still uses.
type Leftover struct {
	Run string
	measure.Things
	SSHKeys int
	// Since is when the first of it was made, Until when the last.
	Since, Until time.Time
}

// Leftovers are those of all runs, this one included, the oldest first. A run that is under way
// has some too: nothing tells but its age. What bears a run's label and no name of a run is none:
// afterwards [Project.Spared] tells of it.
func (p *Project) Leftovers(ctx context.Context) ([]Leftover, error) {
	byRun := map[string]*Leftover{}
	for _, k := range kinds {
		things, err := p.list(ctx, k, Label)
		if err != nil {
			return nil, err
		}
		for _, t := range things {
			if !t.of(t.run) || !runName.MatchString(t.run) {
				continue // somebody has used the label for something else: it is spared
			}
			if byRun[t.run] == nil {
				byRun[t.run] = &Leftover{Run: t.run, Since: t.created, Until: t.created}
			}
			byRun[t.run].add(t)
		}
	}
	var all []Leftover
	for _, left := range byRun {
		all = append(all, *left)
	}
	slices.SortFunc(all, func(a, b Leftover) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.Run, b.Run)
	})
	return all, nil
}

func (l *Leftover) add(t thing) {
	if n := count(&l.Things, t.kind); n != nil {
		*n++
	} else {
		l.SSHKeys++
	}
	if t.created.Before(l.Since) {
		l.Since = t.created
	}
	if t.created.After(l.Until) {
		l.Until = t.created
	}
}
