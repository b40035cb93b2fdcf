//go:build !race

// The race detector makes these tests take minutes, and variants are caught without it.

package controller

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

// The schedules prove something only if they catch a controller that breaks a rule. Each variant
// breaks one rule, by altering requests, responses or the configuration.
func TestSchedulesCatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		broken variant
		shows  string
	}{
		{"a ledger that nobody else sees", variant{line: amnesia, settings: []setting{alone}}, "both have"},
		{"handing out before recording", variant{line: amnesia, settings: []setting{alone}}, "not recorded"},
		{"writing the ledger whatever it became meanwhile", variant{line: blind}, "both have"},
		{"a release on an unknown outcome", variant{line: hasty(func(error) bool { return true }), settings: []setting{forgetful}}, "both have"},
		{"a release on anybody's 404", variant{line: hasty(apierrors.IsNotFound), settings: []setting{forgetful}, proxied: true}, "not recorded"},
		{"no quarantine", variant{settings: []setting{quarantine(time.Millisecond)}}, "until"},
		{"no look at the routes", variant{settings: []setting{withRouted(unrouted)}}, "still routed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i := range *schedules {
				for _, problem := range runSchedule(t, *firstSeed+uint64(i), c.broken) {
					if strings.Contains(problem, c.shows) && !strings.Contains(problem, "\n") {
						t.Logf("caught by schedule %d: %s", i, problem)
						return
					}
				}
			}
			t.Errorf("%d schedules did not notice %s", *schedules, c.name)
		})
	}
}

// Prefixes stay apart without the quarantine too: the problems that the variants above show without
// one have no other cause than their flaw.
func TestNoScheduleWithoutAQuarantineMakesAnOverlap(t *testing.T) {
	for i := range *schedules / 10 {
		seed := *firstSeed + uint64(i)
		for _, problem := range runSchedule(t, seed, variant{
			settings: []setting{forgetful}, proxied: i%2 == 0,
		}) {
			if strings.Contains(problem, "both have") || strings.Contains(problem, "not recorded") {
				t.Fatalf("seed %d: %s", seed, problem)
			}
		}
	}
}

// amnesia gives each process a ledger of its own, which ends with it.
func amnesia(api http.RoundTripper) http.RoundTripper {
	private := newFakeAPI()
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if isLedger(req) {
			return private.RoundTrip(req)
		}
		return api.RoundTrip(req)
	})
}

var resourceVersion = regexp.MustCompile(`"resourceVersion":"[0-9]*"`)

// blind removes the optimistic concurrency from the ledger's writes.
func blind(api http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if isLedger(req) && req.Method == http.MethodPut {
			body, err := fakeapi.ReadBody(req)
			if err != nil {
				return nil, err
			}
			req = withBody(req, resourceVersion.ReplaceAllLiteral(body, []byte(`"resourceVersion":""`)))
		}
		return api.RoundTrip(req)
	})
}

// hasty takes failures that don't prove a Node's absence for one that does.
func hasty(mistaken func(error) bool) func(http.RoundTripper) http.RoundTripper {
	return func(api http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			name, aboutNode := strings.CutPrefix(req.URL.Path, nodesPath+"/")
			response, err := api.RoundTrip(req)
			failure := err
			if err == nil && response.StatusCode == http.StatusNotFound {
				failure = apierrors.NewNotFound(nodeResource, name)
			}
			if aboutNode && failure != nil && mistaken(failure) {
				return fakeapi.Reply(nil, apierrors.NewNotFound(nodeResource, name))
			}
			return response, err
		})
	}
}

// alone always reports that there was no earlier process.
func alone(c *Config) {
	c.First = func(context.Context) (bool, error) { return true, nil }
}

// forgetful shortens the quarantine, which would hide a wrong release for a while.
func forgetful(c *Config) { c.Quarantine, c.Routed = time.Millisecond, nil }

func unrouted(netip.Prefix) (bool, bool) { return false, true }

func withBody(req *http.Request, body []byte) *http.Request {
	req = req.Clone(req.Context())
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return req
}
