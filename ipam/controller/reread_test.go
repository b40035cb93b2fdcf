package controller

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// One write of a ledger in many shards has an unknown outcome. The test limits the objects that are
// read again, and the time that a new Node waits, with 10 ms for each request.
func TestOnlyUnknownObjectsAreReadAgain(t *testing.T) {
	refusal := apierrors.NewInternalError(fmt.Errorf("etcd is away"))
	for name, c := range map[string]struct {
		fails fault
		reads int
		wait  time.Duration
	}{
		"the answer is lost":      {fault{lose: true}, 2, 100 * time.Millisecond},
		"it never arrives":        {fault{refuse: true}, 4, 200 * time.Millisecond},
		"the API server refuses":  {fault{reply: refusal}, 4, 200 * time.Millisecond},
		"a conflict, as it seems": {fault{reply: apierrors.NewConflict(configMapResource, "any", fmt.Errorf("changed"))}, 3, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				fails, reads := false, 0
				api.inject(func(c2 call) fault {
					f := fault{delay: 10 * time.Millisecond}
					if c2.kind == "GET configmaps" {
						reads++
					}
					if fails && c2.kind == "PUT configmaps" {
						fails, f = false, c.fails
					}
					return f
				})
				p := start(t, api, dualStack(256))
				defer p.stop()
				pass(time.Second)
				for i := range 100 {
					api.add(fmt.Sprint("node-", i), onMachine(fmt.Sprint("underlay://node-", i)))
				}
				pass(10 * time.Minute)
				api.Lock()
				reads, fails = 0, true
				api.Unlock()
				began := time.Now()
				api.create("new")
				for len(api.podCIDRs("new")) == 0 && time.Since(began) < time.Minute {
					pass(time.Millisecond)
				}
				if waited := time.Since(began); reads > c.reads || waited > c.wait {
					t.Errorf("%d reads of the ledger and %s, want at most %d and %s", reads, waited, c.reads, c.wait)
				}
				wantSound(t, api)
			})
		})
	}
}
