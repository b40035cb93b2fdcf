package hetzner

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/requests"
)

func limitMessage(limit, left string) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Ratelimit-Limit": {limit}, "Ratelimit-Remaining": {left}},
	}
}

// Whatever the headers contain, an urgent request waits seconds, and others at most as long as the
// information is valid.
func TestOddRateLimitsDoNotSilenceTheClient(t *testing.T) {
	for _, c := range []struct{ limit, left string }{
		{"1", "0"},
		{"0", "0"},
		{"-1", "-1"},
		{"59", "0"},
		{"3600", "-999999999999"},
		{"3600", "-9223372036854775808"},
		{"3600", "9223372036854775807"},
		{"3600", "92233720368547758070"},
		{"92233720368547758070", "0"},
		{"9223372036854775807", "0"},
		{"3600", ""},
		{"", "0"},
		{"1e3", "1e3"},
	} {
		t.Run(c.limit+" "+c.left, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newDoor(t, hcloudsim.Options{}).rt.budget
				for p, most := range map[requests.Priority]time.Duration{
					requests.Urgent: 20 * time.Second, requests.Background: knownFor + time.Second,
				} {
					number, err := b.spend(requests.WithPriority(t.Context(), requests.Urgent))
					if err != nil {
						t.Fatal(err)
					}
					b.learn(number, limitMessage(c.limit, c.left), nil)
					began := time.Now()
					if number, err = b.spend(requests.WithPriority(t.Context(), p)); err != nil {
						t.Fatal(err)
					}
					if waited := time.Since(began); waited > most {
						t.Errorf("a request of priority %s waited %s", p, waited)
					}
					b.learn(number, limitMessage("3600", "3600"), nil)
				}
			})
		})
	}
}

// The rate limit of a response delays requests for five minutes; then one request is sent, and the
// others wait for its response.
func TestAnOldRateLimitIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDoor(t, hcloudsim.Options{}).rt.budget
		number, err := b.spend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.learn(number, limitMessage("3600", "0"), nil)
		began := time.Now()
		passed := make(chan int, 3)
		for range cap(passed) {
			go func() {
				number, err := b.spend(requests.WithPriority(t.Context(), requests.Background))
				if err == nil {
					passed <- number
				}
			}()
		}
		time.Sleep(knownFor + time.Second)
		synctest.Wait()
		if len(passed) != 1 {
			t.Fatalf("%d requests passed after %s, want 1", len(passed), time.Since(began))
		}
		b.learn(<-passed, limitMessage("3600", "3600"), nil)
		synctest.Wait()
		if len(passed) != 2 {
			t.Errorf("%d requests passed after an answer, want the other 2", len(passed))
		}
	})
}
