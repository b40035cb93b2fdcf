package hetzner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// pageServer serves lists of objects with these IDs, sorted, of any kind.
type pageServer struct {
	ids []int
	// after runs after each page.
	after func()
	// change, if it isn't nil, changes a response.
	change   func(page int, pagination, response map[string]any)
	requests int
}

func (s *pageServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests++
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	page = max(page, 1)
	from, to := min((page-1)*50, len(s.ids)), min(page*50, len(s.ids))
	objects := []any{}
	for _, id := range s.ids[from:to] {
		objects = append(objects, map[string]any{
			"id": id, "name": fmt.Sprint("n", id), "type": "ipv4", "server": 1,
			"ip": fmt.Sprintf("203.0.%d.%d", id/256, id%256),
		})
	}
	pagination := map[string]any{
		"page": page, "per_page": 50, "next_page": nil,
		"last_page": max(1, (len(s.ids)+49)/50), "total_entries": len(s.ids),
	}
	if to < len(s.ids) {
		pagination["next_page"] = page + 1
	}
	response := map[string]any{
		path.Base(r.URL.Path): objects, "meta": map[string]any{"pagination": pagination},
	}
	if s.change != nil {
		s.change(page, pagination, response)
	}
	body, err := json.Marshal(response)
	if s.after != nil {
		s.after()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(body))), Request: r,
	}, err
}

// listed reads a list of a kind and returns which of the IDs up to most it contains.
type listed func(ctx context.Context, c *hetzner.Client, most int) (map[int64]bool, error)

func listedKinds() map[string]listed {
	return map[string]listed{
		"servers": func(ctx context.Context, c *hetzner.Client, _ int) (map[int64]bool, error) {
			found, err := c.Servers(0).List(ctx, time.Now())
			return idsOf(found), err
		},
		"load balancers": func(ctx context.Context, c *hetzner.Client, _ int) (map[int64]bool, error) {
			found, err := c.LoadBalancers().All(ctx)
			ids := map[int64]bool{}
			for _, s := range found {
				ids[s.ID] = true
			}
			return ids, err
		},
		"certificates": func(ctx context.Context, c *hetzner.Client, _ int) (map[int64]bool, error) {
			found, err := c.LoadBalancers().Certificates(ctx)
			ids := map[int64]bool{}
			for _, s := range found {
				ids[s.ID] = true
			}
			return ids, err
		},
		"floating IPs": func(ctx context.Context, c *hetzner.Client, most int) (map[int64]bool, error) {
			none := func(context.Context) (map[int64]string, error) { return nil, nil }
			o := hetzner.FloatingIPOptions{Nodes: none}
			address := netip.MustParseAddr("203.0.0.1")
			for range most {
				wanted, err := addresses.ParseRange(address.String())
				if err != nil {
					return nil, err
				}
				o.Ranges, address = append(o.Ranges, wanted), address.Next()
			}
			routed, err := c.FloatingIPs(o).Routed(ctx)
			ids := map[int64]bool{}
			for id := 1; id <= most && err == nil; id++ {
				address := netip.AddrFrom4([4]byte{203, 0, byte(id / 256), byte(id)})
				_, ids[int64(id)] = routed[address]
			}
			return ids, err
		},
	}
}

// eachKind runs a test for the lists of every kind.
func eachKind(
	t *testing.T, test func(t *testing.T, s *pageServer, read func() (map[int64]bool, error)),
) {
	for kind, listed := range listedKinds() {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &pageServer{}
				for id := 1; id <= 260; id++ {
					s.ids = append(s.ids, id)
				}
				c, err := hetzner.New(hetzner.Options{
					Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
					Registry: metrics.NewKubeRegistry(), Transport: s,
				})
				if err != nil {
					t.Fatal(err)
				}
				test(t, s, func() (map[int64]bool, error) { return listed(t.Context(), c, 260) })
			})
		})
	}
}

// A deletion between two pages doesn't hide existing objects.
func TestDeletionsBetweenPagesHideNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, s *pageServer, read func() (map[int64]bool, error)) {
		next, deleted := 7, map[int64]bool{}
		s.after = func() {
			s.ids = slices.DeleteFunc(s.ids, func(id int) bool { return id == next })
			deleted[int64(next)] = true
			next += 13
		}
		for range 3 {
			have, err := read()
			if err != nil {
				t.Fatal(err)
			}
			for id := range int64(260) {
				if !have[id+1] && !deleted[id+1] {
					t.Errorf("%d exists and is not in the list", id+1)
				}
			}
			time.Sleep(time.Minute)
		}
	})
}

// Inconsistent pages are an error, after few requests, and never part of a list.
func TestPagesThatContradictEachOther(t *testing.T) {
	for name, change := range map[string]func(page int, pagination, response map[string]any){
		"the same page is next": func(page int, pagination, _ map[string]any) {
			pagination["next_page"] = page
		},
		"back and forth": func(page int, pagination, _ map[string]any) {
			pagination["last_page"], pagination["total_entries"], pagination["next_page"] = nil, nil, 3-page
		},
		"without end": func(page int, pagination, response map[string]any) {
			pagination["last_page"], pagination["total_entries"], pagination["next_page"] = nil, nil, page+1
			for key, objects := range response {
				if objects, ok := objects.([]any); ok && page > 1 {
					for len(objects) < 50 {
						objects = append(objects, map[string]any{"id": 1, "type": "ipv4"})
					}
					response[key] = objects
				}
			}
		},
		"too many pages": func(_ int, pagination, _ map[string]any) {
			pagination["last_page"], pagination["total_entries"] = 1<<30, nil
		},
		"not sorted": func(_ int, _, response map[string]any) {
			for _, objects := range response {
				if objects, ok := objects.([]any); ok {
					slices.Reverse(objects)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, s *pageServer, read func() (map[int64]bool, error)) {
				s.change = change
				have, err := read()
				if err == nil || !strings.Contains(err.Error(), "pages contradict each other") {
					t.Errorf("%d objects, %v", len(have), err)
				}
				if s.requests > 10 {
					t.Errorf("%d requests", s.requests)
				}
			})
		})
	}
}

// The numbers that describe the whole list may be missing.
func TestAListWhosePagesNameOnlyTheNext(t *testing.T) {
	eachKind(t, func(t *testing.T, s *pageServer, read func() (map[int64]bool, error)) {
		s.change = func(_ int, pagination, _ map[string]any) {
			pagination["last_page"], pagination["total_entries"] = nil, nil
		}
		have, err := read()
		if err != nil || len(have) != 260 {
			t.Errorf("%d objects, %v; want 260", len(have), err)
		}
	})
}

// A response without a list is not an empty list.
func TestAnAnswerWithoutAListIsAnError(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint("pagination ", keep), func(t *testing.T) {
			eachKind(t, func(t *testing.T, s *pageServer, read func() (map[int64]bool, error)) {
				s.change = func(_ int, _, response map[string]any) {
					for key := range response {
						if key != "meta" || !keep {
							delete(response, key)
						}
					}
				}
				if have, err := read(); err == nil {
					t.Errorf("the list has %d objects, no error", len(have))
				}
			})
		})
	}
}
