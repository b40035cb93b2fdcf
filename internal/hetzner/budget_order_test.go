package hetzner

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/internal/requests"
)

// door is a budget with a record of the requests that passed it, in order.
type door struct {
	sim *hcloudsim.Simulator
	rt  *budgeted

	mu     sync.Mutex
	passed []requests.Priority
	lost   bool // the network is down
}

func (d *door) lose(lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = lost
}

func newDoor(t *testing.T, o hcloudsim.Options) *door {
	t.Helper()
	b := newBudget(promauto.With(metrics.NewKubeRegistry(), "cloud_requests"))
	d := &door{sim: hcloudsim.New(o)}
	d.rt = &budgeted{next: d, budget: b}
	return d
}

func (d *door) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.passed)
}

// RoundTrip is the transport behind the budget.
func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	d.passed = append(d.passed, requests.PriorityOf(r.Context()))
	lost := d.lost
	d.mu.Unlock()
	if lost {
		return nil, io.ErrUnexpectedEOF
	}
	return d.sim.Transport().RoundTrip(r)
}

// knock sends one request through the budget.
func (d *door) knock(ctx context.Context, p requests.Priority) (int, error) {
	r, err := http.NewRequestWithContext(requests.WithPriority(ctx, p), http.MethodGet, "http://cloud.test/v1/locations", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer any")
	resp, err := d.rt.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// drain spends the budget without the client, and then lets it notice.
func (d *door) drain(t *testing.T, count int) {
	t.Helper()
	for range count {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cloud.test/v1/locations", nil)
		if _, err := d.sim.Transport().RoundTrip(r); err != nil {
			t.Fatal(err)
		}
	}
	if status, err := d.knock(t.Context(), requests.Urgent); err != nil || status != http.StatusOK {
		t.Fatalf("%d, %v", status, err)
	}
}

// Delayed requests are sent by priority, not by age.
func TestDelayedRequestsAreSentByPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, hcloudsim.Options{})
		d.drain(t, 3598)
		d.passed = nil
		var waiting sync.WaitGroup
		for _, p := range []requests.Priority{requests.Background, requests.Normal, requests.Urgent} {
			for range 4 {
				waiting.Go(func() {
					if status, err := d.knock(t.Context(), p); err != nil || status != http.StatusOK {
						t.Errorf("%s: %d, %v", p, status, err)
					}
				})
			}
			synctest.Wait()
		}
		waiting.Wait()
		if !slices.IsSortedFunc(d.passed, func(a, b requests.Priority) int { return int(b - a) }) ||
			len(d.passed) != 12 {
			t.Errorf("passed in the order %v", d.passed)
		}
	})
}

// Background requests wait while there is more normal work than the budget allows, but not forever.
func TestBackgroundIsStretchedNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, hcloudsim.Options{})
		d.drain(t, 3598)
		ctx, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		for range 20 {
			working.Go(func() {
				for ctx.Err() == nil {
					_, _ = d.knock(ctx, requests.Normal)
				}
			})
		}
		began := time.Now()
		if status, err := d.knock(t.Context(), requests.Background); err != nil ||
			status != http.StatusOK {
			t.Errorf("%d, %v", status, err)
		}
		if waited := time.Since(began); waited < 10*time.Minute || waited > 20*time.Minute {
			t.Errorf("background work waited %s, want about %s", waited, requests.LongestStretch)
		}
		stop()
		working.Wait()
	})
}

// While the API doesn't respond, few requests are sent, and the first one with a response lets all
// others through.
func TestAnOutageCostsLittle(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(*door) error }{
		"429": outageOf(http.StatusTooManyRequests),
		"503": outageOf(http.StatusServiceUnavailable),
		"401": outageOf(http.StatusUnauthorized),
		"no answer": {
			func(d *door) error { d.lose(true); return nil },
			func(d *door) error { d.lose(false); return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDoor(t, hcloudsim.Options{Latency: 10 * time.Millisecond})
				if err := c.begin(d); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				var working sync.WaitGroup
				for range 50 {
					working.Go(func() {
						for ctx.Err() == nil {
							if status, err := d.knock(ctx, requests.Normal); err == nil && status == http.StatusOK {
								return
							}
						}
					})
				}
				time.Sleep(time.Minute)
				if n := d.count(); n < 25 || n > 50+31 {
					t.Errorf("%d requests in a minute's outage", n)
				}
				if err := c.end(d); err != nil {
					t.Fatal(err)
				}
				ended := time.Now()
				working.Wait()
				if took := time.Since(ended); took > probeGap+time.Second {
					t.Errorf("%s until everybody was served", took)
				}
				stop()
			})
		})
	}
}

func outageOf(status int) struct{ begin, end func(*door) error } {
	return struct{ begin, end func(*door) error }{
		func(d *door) error { return d.sim.Inject(hcloudsim.Fault{Times: -1, Status: status}) },
		func(d *door) error { d.sim.ClearFaults(); return nil },
	}
}

// An invalid request is no evidence about the API.
func TestRefusalsAreNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, hcloudsim.Options{})
		for _, status := range []int{404, 409, 412, 422, 423} {
			if err := d.sim.Inject(hcloudsim.Fault{Status: status, Times: 10}); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for range 10 {
				if got, err := d.knock(t.Context(), requests.Normal); err != nil || got != status {
					t.Errorf("%d, %v; want %d", got, err, status)
				}
			}
			if waited := time.Since(began); waited > 0 {
				t.Errorf("after answers of %d, requests were held back for %s", status, waited)
			}
		}
	})
}

// A canceled wait leaves no gap and takes no other request's place.
func TestGivingUpAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, hcloudsim.Options{})
		d.drain(t, 3598)
		d.passed = nil
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := d.knock(hurried, requests.Urgent); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want that waiting was cut short", err)
			}
		})
		waiting.Go(func() {
			if status, err := d.knock(t.Context(), requests.Urgent); err != nil || status != http.StatusOK {
				t.Errorf("%d, %v", status, err)
			}
		})
		waiting.Wait()
		if len(d.passed) != 1 {
			t.Errorf("%d requests passed, want 1", len(d.passed))
		}
	})
}

// Responses can be reordered; the older ones have less information.
func TestLateAnswersDontRaiseTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDoor(t, hcloudsim.Options{}).rt.budget
		says := func(left int) *http.Response {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{
				"Ratelimit-Limit": {"3600"}, "Ratelimit-Remaining": {strconv.Itoa(left)},
			}}
		}
		first, err1 := b.spend(t.Context())
		second, err2 := b.spend(t.Context())
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		b.learn(second, says(10), nil)
		b.learn(first, says(11), nil)
		if b.left > 10 {
			t.Errorf("%v requests are thought to be left, the newest answer said 10", b.left)
		}
		if b.spare() {
			t.Error("there is room for background work although ten requests are left")
		}
	})
}
