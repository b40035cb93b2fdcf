package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/routes"
)

// fail sets the error of all following calls; nil: none.
func (e *edgeBook) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.asked = err, nil
}

// retried is longer than the longest backoff of the queue.
const retried = 40 * time.Second

// While the packet filter fails, later components are not changed, the Node's condition reports it
// in every family mode, and a Node that never was available stays unavailable.
func TestComponentsAfterAFailureWait(t *testing.T) {
	for _, modes := range []routes.Modes{bothByNodes, {IPv4: routes.ByCloud, IPv6: routes.ByNodes}} {
		withFixture(t, modes, nil, func(w *fixture) {
			refused := errors.New("making the nftables table: refused")
			w.before.fail(refused)
			w.put(self())
			time.Sleep(retried)
			w.rest()
			if asked := w.after.log(); len(asked) > 0 {
				t.Errorf("%v: asked for %q after a failure", modes, asked)
			}
			if len(w.before.log()) < 2 {
				t.Errorf("%v: not tried again: %q", modes, w.before.log())
			}
			c := w.condition(PeersReachable)
			if c.Status != corev1.ConditionFalse || c.Reason != reasonNotReady ||
				!strings.Contains(c.Message, "before: making the nftables table: refused") ||
				!strings.Contains(c.Message, "until then after stays as it is") {
				t.Errorf("%v: the Node says %+v", modes, c)
			}
			if c := w.condition(corev1.NodeNetworkUnavailable); modes == bothByNodes &&
				c.Status != corev1.ConditionTrue {
				t.Errorf("%v: available without a filter: %+v", modes, c)
			}
			if err := w.agent.Ready(); !errors.Is(err, refused) {
				t.Errorf("%v: ready: %v", modes, err)
			}
			w.before.fail(nil)
			time.Sleep(retried)
			w.rest()
			if c := w.condition(PeersReachable); c.Status != corev1.ConditionTrue ||
				len(w.after.log()) == 0 {
				t.Errorf("%v: afterwards %+v, asked %q", modes, c, w.after.log())
			}
		})
	}
}

// If the update of a filter fails, the former rules still apply, and pods keep running. While a
// filter is down, no new pod starts.
func TestAFilterThatFailsLater(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.after.fail(nil)
		w.before.fail(errors.New("nft: device or resource busy"))
		w.put(kubeNode("c", "10.0.0.3", "10.244.3.0/24"))
		time.Sleep(retried)
		w.rest()
		if asked := w.after.log(); len(asked) > 0 {
			t.Errorf("out of date: asked for %q", asked)
		}
		w.routes("10.244.2.0/24 via 10.0.0.2", "10.244.3.0/24 via 10.0.0.3")

		w.before.fail(fmt.Errorf("%w: nft: permission denied", ErrDown))
		time.Sleep(retried)
		w.rest()
		asked := w.after.log()
		if len(asked) == 0 || !strings.HasPrefix(asked[len(asked)-1], "pods [] of") {
			t.Errorf("down: asked for %q, want that no pod starts", asked)
		}
		w.routes("10.244.2.0/24 via 10.0.0.2", "10.244.3.0/24 via 10.0.0.3")
		if c := w.condition(PeersReachable); !strings.Contains(c.Message, "permission denied; no pod can start until then") {
			t.Errorf("the Node says %q", c.Message)
		}
		w.before.fail(nil)
		time.Sleep(retried)
		w.rest()
		if asked := w.after.log(); !strings.HasPrefix(asked[len(asked)-1], "pods [10.244.1.0/24") {
			t.Errorf("afterwards: asked for %q", asked)
		}
	})
}

// A problem of the node itself keeps its pods from starting; a route to a peer that the kernel
// rejects doesn't.
func TestRoutesThatPodsWaitFor(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		waits bool
	}{
		"no uplink":              {[]*corev1.Node{kubeNode("self", "10.9.9.9", "10.244.1.0/24")}, true},
		"a podCIDR of another's": {[]*corev1.Node{self(), older(kubeNode("b", "10.0.0.2", "10.244.1.0/24"))}, true},
		"a peer without a route": {[]*corev1.Node{self(), kubeNode("far", "10.9.9.9", "10.244.9.0/24")}, false},
	} {
		withFixture(t, bothByNodes, c.nodes, func(w *fixture) {
			if asked := w.after.log(); (len(asked) == 0) != c.waits {
				t.Errorf("%s: asked for %q, want waiting %t", name, asked, c.waits)
			}
		})
	}
}

func older(n *corev1.Node) *corev1.Node {
	n.CreationTimestamp.Time = n.CreationTimestamp.Add(-time.Hour)
	return n
}
