package controller

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

// slowReplies delays the responses of requests of a kind, which are applied at once.
func slowReplies(api http.RoundTripper, kind string, delay time.Duration) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		response, err := api.RoundTrip(req)
		if identify(req, nil).kind == kind {
			fakeapi.Elapse(req.Context().Done(), delay)
		}
		return response, err
	})
}

// The response to a PATCH arrives after the observed deletion of the Node, which stays deleted.
func TestAReplyFromBeforeADeletionRevivesNoNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, slowReplies(api, "PATCH nodes", 5*time.Second), dualStack(1), quarantine(time.Minute))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(2 * time.Second)
		api.delete("a")
		api.create("b")
		pass(10 * time.Minute)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
		p.wantMetric(t, "underlay_ipam_releases_total", 1)
		if left, _ := p.Departed(); len(left) > 0 {
			t.Errorf("Departed() = %v after the quarantine", left)
		}
		wantSound(t, api)
	})
}

// slowOwn finds an own prefix for every machine, after a delay.
type slowOwn time.Duration

func (s slowOwn) OwnPrefix(
	ctx context.Context, _ *corev1.Node,
) (netip.Prefix, []netip.Addr, error) {
	fakeapi.Elapse(ctx.Done(), time.Duration(s))
	return pfx("2001:db8::/64"), nil, nil
}

// The own prefix of a reserved Node is found after the observed deletion of the Node.
func TestAnOwnPrefixThatIsFoundAfterADeletionRevivesNoNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		pools := []Pool{pool("v4", "10.0.0.0/24", 24), {PoolConfig: ipam.PoolConfig{Name: "own", NodeMask: 80, Own: true}}}
		own := func(delay time.Duration) setting {
			return func(c *Config) { c.Own = slowOwn(delay) }
		}
		api := newFakeAPI()
		api.inject(always("PATCH nodes", fault{refuse: true}))
		former := start(t, api, pools, own(0))
		pass(time.Second)
		api.create("a")
		pass(time.Minute)
		entry(t, api, "a")
		former.stop()

		api.inject(nil)
		p := start(t, api, pools, own(5*time.Second), notFirst, quarantine(time.Minute))
		defer p.stop()
		pass(2 * time.Second)
		api.delete("a")
		pass(time.Second)
		api.create("b")
		pass(10 * time.Minute)
		if got := api.podCIDRs("b"); len(got) != 2 || got[0] != pfx("10.0.0.0/24") {
			t.Errorf("Node b has %v, want what a had reserved\n%s", got, api)
		}
		if got := api.holders(); len(got) != 1 || got[0] != "b" {
			t.Errorf("the ledger has %q, want b alone", got)
		}
		wantSound(t, api)
	})
}
