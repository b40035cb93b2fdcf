package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// table is a route table in memory that prints itself.
type table struct {
	mu     sync.Mutex
	routes []routes.Route
	limit  int
	lists  int
	writes []string
	// fail returns the error of a write, and whether it is applied nevertheless, as when the reply
	// is lost.
	fail func(write string) (err error, applied bool)
	// answered is called after a write is applied and before it returns.
	answered func(write string)
	// listErr makes lists fail.
	listErr error
	// listTakes and writeTakes are the durations of a list and a write; a write takes this besides
	// the cloud's own time, and before it is accepted.
	listTakes, writeTakes time.Duration
}

func (t *table) List(context.Context) ([]routes.Route, error) {
	time.Sleep(t.delay(&t.listTakes))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lists++
	return slices.Clone(t.routes), t.listErr
}

func (t *table) Add(ctx context.Context, r routes.Route) error {
	return t.change("add "+r.String(), func() error {
		if len(t.routes) >= t.limit {
			return fmt.Errorf("adding %s: %w", r, routes.ErrFull)
		}
		if slices.ContainsFunc(t.routes, func(h routes.Route) bool {
			return h.Dst.Bits() > 0 && h.Dst.Overlaps(r.Dst)
		}) {
			return fmt.Errorf("adding %s: overlaps", r)
		}
		t.routes = append(t.routes, r)
		return nil
	})
}

func (t *table) Delete(ctx context.Context, r routes.Route, by time.Time) error {
	time.Sleep(t.delay(&t.writeTakes))
	if time.Now().After(by) {
		return errLate
	}
	return t.change("delete "+r.String(), func() error {
		t.routes = slices.DeleteFunc(t.routes, func(h routes.Route) bool { return h == r })
		return nil
	})
}

func (t *table) Replace(ctx context.Context, old, to routes.Route, by time.Time) error {
	time.Sleep(t.delay(&t.writeTakes))
	if time.Now().After(by) {
		return errLate
	}
	return t.change("replace "+old.String()+" by "+to.String(), func() error {
		t.routes = slices.DeleteFunc(t.routes, func(h routes.Route) bool { return h == old })
		t.routes = append(t.routes, to)
		return nil
	})
}

func (t *table) delay(d *time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *d
}

func (t *table) change(write string, apply func() error) error {
	time.Sleep(300 * time.Millisecond) // the cloud's own time, on the bubble's clock
	err := t.apply(write, apply)
	if t.answered != nil {
		t.answered(write)
	}
	return err
}

func (t *table) apply(write string, apply func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = append(t.writes, write)
	if t.fail != nil {
		if err, applied := t.fail(write); err != nil {
			if applied {
				_ = apply()
			}
			return err
		}
	}
	return apply()
}

// log returns all writes so far, looks the number of lists, and standing the current routes.
func (t *table) log() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.writes)
}

func (t *table) looks() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lists
}

func (t *table) standing() []routes.Route {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.routes)
}

func (t *table) String() string {
	var s []string
	for _, r := range t.standing() {
		s = append(s, r.String())
	}
	slices.Sort(s)
	return strings.Join(s, "\n")
}
