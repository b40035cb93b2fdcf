package hetzner_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// The API replaces all labels at once: labels that another client writes between the list and the
// update are kept, and a floating IP that was reassigned in that time is not labeled.
func TestLabelsOfOthersStay(t *testing.T) {
	for name, move := range map[string]bool{"labeled": false, "assigned elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			var f *floating
			var once sync.Once
			o := hcloudsim.Options{OnRequest: func(r hcloudsim.Request) {
				if f == nil || r.Path != "/v1/floating_ips" {
					return
				}
				once.Do(func() {
					if move {
						f.must(f.sim.AssignFloatingIP(f.id["203.0.113.9"], f.id["stranger"]))
						return
					}
					body := strings.NewReader(`{"labels": {"team": "y"}}`)
					q, err := http.NewRequest(http.MethodPut, fmt.Sprintf("http://cloud.test/v1/floating_ips/%d", f.id["203.0.113.9"]), body)
					f.must(err)
					q.Header.Set("Authorization", "Bearer right")
					q.Header.Set("Content-Type", "application/json")
					response, err := f.sim.Transport().RoundTrip(q)
					f.must(err)
					if response.Body.Close(); response.StatusCode != http.StatusOK {
						t.Errorf("somebody else's label: %s", response.Status)
					}
				})
			}}
			bubble(t, o, func(made *floating) {
				made.float("203.0.113.9/32", "a", map[string]string{"team": "x"})
				f = made
				_, err := f.ips.Routed(f.t.Context())
				f.must(err)
				got, _ := f.sim.FloatingIP(f.id["203.0.113.9"])
				want := map[string]string{"team": "y", "underlay.dev/cluster": "prod"}
				if move {
					want = map[string]string{"team": "x"}
				}
				if !maps.Equal(got.Labels, want) {
					t.Errorf("labels are %v, want %v", got.Labels, want)
				}
			})
		})
	}
}
