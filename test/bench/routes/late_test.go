package routes_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// lease is the default of managers, and held how long a deletion is in flight.
const lease, held = 15 * time.Second, 26 * time.Second

// holdDeletions delays every deletion of a route for a while. Requests delayed in front of the
// cloud end with the client's context; those that the cloud itself delays don't.
func holdDeletions(t *testing.T, l *simcluster.Cluster, byTheCloud bool) (sent *atomic.Int32) {
	sent = &atomic.Int32{}
	l.Meddle = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/actions/delete_route") || sent.Load() > 0 {
				return next.RoundTrip(r)
			}
			sent.Add(1)
			done := r.Context().Done()
			if byTheCloud {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				late := r.Clone(t.Context())
				late.Body = io.NopCloser(bytes.NewReader(body))
				time.AfterFunc(held, func() {
					if answer, err := next.RoundTrip(late); err == nil {
						_ = answer.Body.Close()
					}
				})
				<-done
				return nil, r.Context().Err()
			}
			select {
			case <-time.After(held):
				return next.RoundTrip(r)
			case <-done:
				return nil, r.Context().Err()
			}
		})
	}
	return sent
}

// A deletion of a former leader takes effect after the next one has initialized the Node that
// rejoined: the route is soon recreated, and if the request was still in flight the route is never
// deleted.
func TestAFormerLeadersLateDeletion(t *testing.T) {
	for _, c := range []struct {
		name       string
		byTheCloud bool
		most       time.Duration // without a route while the Node's condition is reachable
	}{{"held in front of the cloud", false, 0}, {"held by the cloud", true, 15 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := setUp(t, simcluster.Pace(), 3)
				sent := holdDeletions(t, l, c.byTheCloud)
				former := start(t, l, simcluster.Options{})
				rest(2 * time.Minute)
				expectAll(t, l, reachable, 3)
				server, ok := serverNamed(l, "node-001")
				if !ok {
					t.Fatal("the server is gone")
				}
				if err := l.API.Remove("node-001"); err != nil {
					t.Fatal(err)
				}
				rest(2 * time.Second)
				if sent.Load() != 1 {
					t.Fatalf("%d deletions are under way, want one", sent.Load())
				}
				former.Stop()
				rest(lease)
				next := start(t, l, simcluster.Options{})
				defer next.Stop()
				rest(time.Second)
				again := simcluster.Machine{Name: "node-001", PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}}
				if _, err := l.Register(t.Context(), again, server); err != nil {
					t.Fatal(err)
				}
				without := time.Duration(0)
				for range 1200 {
					rest(100 * time.Millisecond)
					if countConditions(t, l)[reachable] == 3 && len(l.Routes()) < 3 {
						without += 100 * time.Millisecond
					}
				}
				t.Logf("%s without a route", without)
				if without > c.most {
					t.Errorf("the Node said for %s that it is reachable, without a route; want at most %s", without, c.most)
				}
				expectAll(t, l, reachable, 3)
				if n := len(l.Routes()); n != 3 {
					t.Errorf("%d routes, want 3", n)
				}
			})
		})
	}
}
