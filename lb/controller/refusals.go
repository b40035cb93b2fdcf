package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

const (
	// firstRetry is when a target that the cloud refused is asked for again: a server that was just
	// created may become known a moment later.
	firstRetry = 30 * time.Second
	// laterRetry is the time after that, doubling up to longestRetry. What mends a refusal is seen
	// sooner than that in the server list, or at the Node.
	laterRetry   = time.Hour
	longestRetry = 8 * time.Hour
)

// refusals remembers what the cloud refused, by [lb.RefusedKey]: a server that is not in the
// network is refused by each load balancer. It does not outlive the process. A nil refusals
// remembers nothing.
type refusals struct {
	mu      sync.Mutex
	refused map[string]*refused
	// taken are targets that a load balancer has taken, and asking those of which the first is just
	// asked.
	taken  map[string]bool
	asking map[string]chan struct{}
}

type refused struct {
	why   error
	delay time.Duration
	until time.Time
	// passing: it is about a pod, of which nobody says when it is gone.
	passing bool
	// hinted: the server list says that the target can be reached, and the cloud was asked since.
	hinted bool
}

// newRefusals returns an empty memory.
func newRefusals() *refusals {
	return &refusals{refused: make(map[string]*refused), taken: make(map[string]bool), asking: make(map[string]chan struct{})}
}

// aboutServer reports whether a refusal is about the server and not about the load balancer.
func aboutServer(err error) bool {
	var rejected *lb.RejectedError
	return errors.As(err, &rejected) && rejected.Target && !strings.HasPrefix(rejected.Code, "load_balancer_")
}

// begin is called before a target is added, and record after that. It returns why another load
// balancer was refused the same not long ago; while the first is asked, others wait for its answer.
func (r *refusals) begin(ctx context.Context, t string) error {
	if r == nil {
		return nil
	}
	for {
		if why := r.of(t); why != nil {
			return why
		}
		r.mu.Lock()
		first := r.asking[t]
		if first == nil && !r.taken[t] {
			r.asking[t] = make(chan struct{})
		}
		r.mu.Unlock()
		if first == nil {
			return nil
		}
		select {
		case <-first:
		case <-ctx.Done():
			return nil // the request will say so
		}
	}
}

// accepted forgets a refusal, and lets those go on who wait for the answer.
func (r *refusals) accepted(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered(key, true)
	delete(r.refused, key)
}

// failed is what becomes of a request that says nothing about the next one.
func (r *refusals) failed(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered(key, false)
}

// record keeps why something was refused, and returns after how long the cloud is asked again:
// first, and then less and less.
func (r *refusals) record(key string, why error, first time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered(key, false)
	for other, known := range r.refused {
		if known.passing && time.Since(known.until) > longestRetry {
			delete(r.refused, other)
			delete(r.taken, other)
		}
	}
	known, again := r.refused[key]
	switch {
	case !again:
		known = &refused{delay: first}
		r.refused[key] = known
	case known.delay < laterRetry:
		known.delay = laterRetry
	default:
		known.delay = min(2*known.delay, longestRetry)
	}
	known.why, known.until = why, time.Now().Add(known.delay)
	return known.delay
}

func (r *refusals) answered(key string, taken bool) {
	r.taken[key] = taken
	if first := r.asking[key]; first != nil {
		close(first)
		delete(r.asking, key)
	}
}

// of returns why something was refused not long ago, or nil if the cloud is to be asked.
func (r *refusals) of(t string) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.refused[t]; ok && time.Now().Before(known.until) {
		return known.why
	}
	return nil
}

// any reports whether a refusal is remembered that may end otherwise than by asking again.
func (r *refusals) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.refused {
		if !known.passing {
			return true
		}
	}
	return false
}

// recordPod is record for a pod, which is a target of a load balancer or two, and not for long.
func (r *refusals) recordPod(key string, why error) time.Duration {
	retry := r.record(key, why, firstRetry)
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.refused[key]; ok { // another load balancer may have taken it just now
		known.passing = true
	}
	return retry
}

// forget is what becomes of a pod that a load balancer has taken.
func (r *refusals) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.refused, key)
	delete(r.taken, key)
}

// hint takes what the server list says about how targets can be reached, and reports whether the
// cloud is to be asked again for any. A list that contradicts the cloud is believed once.
func (r *refusals) hint(reachable map[lb.Target]bool) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, reached := range reachable {
		for _, key := range keysOf(t, lb.Target{Server: t.Server, Private: !t.Private}) {
			known, ok := r.refused[key]
			if !ok {
				continue
			}
			if reached && !known.hinted {
				known.until, again = time.Time{}, true
			}
			known.hinted = reached
		}
	}
	return again
}

// changed has the cloud asked again for a Node that has changed, and reports whether anything of it
// was refused.
func (r *refusals) changed(old, node *corev1.Node) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.Concat(allKeysOf(old), allKeysOf(node)) {
		if known, ok := r.refused[key]; ok {
			known.until, again = time.Time{}, true
		}
	}
	return again
}

// askAgain has the cloud asked again for everything.
func (r *refusals) askAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.refused {
		known.until = time.Time{}
	}
}

// gone forgets a Node.
func (r *refusals) gone(node *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range allKeysOf(node) {
		delete(r.refused, key)
		delete(r.taken, key)
	}
}

// keysOf are those of a target: alone, and in the place of the others that the same node can be.
func keysOf(t lb.Target, others ...lb.Target) []string {
	keys := []string{t.String()}
	for _, other := range others {
		keys = append(keys, lb.ReplaceTarget{Old: other, New: t}.String())
	}
	return keys
}

// allKeysOf are those of a Node, at whichever of its addresses it is reached.
func allKeysOf(node *corev1.Node) (keys []string) {
	server, _ := kube.ParseProviderID(node.Spec.ProviderID)
	targets := []lb.Target{{Server: server}, {Server: server, Private: true}}
	if dedicated(node) {
		targets = nil
		for _, a := range reported(node) {
			targets = append(targets, lb.AddressTarget(a))
		}
	}
	for _, t := range targets {
		keys = append(keys, keysOf(t, targets...)...)
	}
	return keys
}

// without returns the spec without what was refused not long ago, and says so.
func (r *refusals) without(spec lb.Spec, have lb.State) (lb.Spec, []lb.Note) {
	spec, why := spec.Without(have, r.of)
	var notes []lb.Note
	for _, err := range why {
		note, _ := noteOf(err, spec)
		notes = append(notes, note)
	}
	return spec, notes
}

// hintPeriod is how often the server list is looked at while targets are refused. The list is
// cached, so most looks cost no request.
const hintPeriod = 15 * time.Second

// watchRefused has targets that were refused asked for again when the server list shows that they
// can be reached now, or when the network has got other subnets for dedicated servers. While none
// is refused, nobody asks for the list.
func (c *Controller) watchRefused(ctx context.Context) {
	known := c.dedicatedRanges()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ranges := c.dedicatedRanges()
		changed := !slices.Equal(known, ranges)
		known = ranges
		if !c.refusals.any() {
			return
		}
		if changed {
			c.refusals.askAgain()
		}
		reachable, err := c.reachable(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("The server list is unknown; targets that were refused are tried later", "err", err)
		}
		if c.refusals.hint(reachable) || changed {
			c.enqueueServices(func(*corev1.Service) bool { return true })
		}
	}, hintPeriod)
}

// addressesChanged reports whether targets may be others now that a Node has other addresses: those
// of a dedicated server are its targets, and what was refused of any may be taken, so that is asked
// for again.
func (c *Controller) addressesChanged(old, node *corev1.Node) bool {
	if !eligible(node) || equality.Semantic.DeepEqual(old.Status.Addresses, node.Status.Addresses) {
		return false
	}
	return c.refusals.changed(old, node) || dedicated(node)
}
