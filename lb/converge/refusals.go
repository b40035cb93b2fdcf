package converge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

const (
	// firstRetry is when a target that the cloud refused is asked for again: a server that was just created
	// may become known a moment later.
	firstRetry = 30 * time.Second
	// laterRetry is the time after that, doubling up to longestRetry. What mends a refusal is seen sooner
	// than that in the server list, or at the Node.
	laterRetry   = time.Hour
	longestRetry = 8 * time.Hour
)

// Refusals remembers which targets the cloud refused for reasons of the server, for all load balancers
// alike: a server that is not in the network is refused by each of them. It does not outlive the process.
// A nil Refusals remembers nothing.
type Refusals struct {
	mu      sync.Mutex
	refused map[lb.Target]*refused
	// taken are targets that a load balancer has taken, and asking those of which the first is just asked.
	taken  map[lb.Target]bool
	asking map[lb.Target]chan struct{}
}

type refused struct {
	why   error
	delay time.Duration
	until time.Time
	// hinted: the server list says that the target can be reached, and the cloud was asked since.
	hinted bool
}

// NewRefusals returns an empty memory.
func NewRefusals() *Refusals {
	return &Refusals{refused: make(map[lb.Target]*refused), taken: make(map[lb.Target]bool), asking: make(map[lb.Target]chan struct{})}
}

// aboutServer reports whether a refusal is about the server and not about the load balancer.
func aboutServer(err error) bool {
	var rejected *lb.RejectedError
	return errors.As(err, &rejected) && rejected.Target && !strings.HasPrefix(rejected.Code, "load_balancer_")
}

// begin is called before a target is added, and record after that. It returns why another load balancer was
// refused the same not long ago; while the first is asked, others wait for its answer.
func (r *Refusals) begin(ctx context.Context, t lb.Target) error {
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

// record keeps what the cloud said to the addition of a target. It reports whether it remembers a refusal,
// and after how long the cloud is asked again.
func (r *Refusals) record(t lb.Target, err error) (retry time.Duration, remembered bool) {
	if r == nil {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first := r.asking[t]; first != nil {
		close(first)
		delete(r.asking, t)
	}
	if r.taken[t] = err == nil; err == nil {
		delete(r.refused, t)
	}
	if !aboutServer(err) {
		return 0, false
	}
	known, again := r.refused[t]
	switch {
	case !again:
		known = &refused{delay: firstRetry}
		r.refused[t] = known
	case known.delay == firstRetry:
		known.delay = laterRetry
	default:
		known.delay = min(2*known.delay, longestRetry)
	}
	known.why, known.until = err, time.Now().Add(known.delay)
	return known.delay, true
}

// of returns why a target was refused, or nil if the cloud is to be asked.
func (r *Refusals) of(t lb.Target) error {
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

// Any reports whether a refusal is remembered.
func (r *Refusals) Any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.refused) > 0
}

// Hint takes what the server list says about how targets can be reached, and reports whether the cloud is
// to be asked again for any. A list that contradicts the cloud is believed once.
func (r *Refusals) Hint(reachable map[lb.Target]bool) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, known := range r.refused {
		if reachable[t] && !known.hinted {
			known.until, again = time.Time{}, true
		}
		known.hinted = reachable[t]
	}
	return again
}

// Changed has the cloud asked again for a server whose Node has changed, and reports whether anything of it
// was refused.
func (r *Refusals) Changed(server int64) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, known := range r.refused {
		if t.Server == server {
			known.until, again = time.Time{}, true
		}
	}
	return again
}

// Gone forgets a Node's server.
func (r *Refusals) Gone(node *corev1.Node) {
	server, _ := serverID(node.Spec.ProviderID)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range []lb.Target{{Server: server}, {Server: server, Private: true}} {
		delete(r.refused, t)
		delete(r.taken, t)
	}
}

// withoutRefused returns the spec without the targets that were refused not long ago.
func (r *Refusals) withoutRefused(spec lb.Spec, have lb.State) (lb.Spec, []lb.Note) {
	present := make(map[int64]bool)
	for _, t := range have.Targets {
		present[t.Server] = true
	}
	var targets []lb.Target
	var notes []lb.Note
	for _, t := range spec.Targets {
		if why := r.of(t); why != nil && !present[t.Server] {
			note, _ := NoteOf(why, spec)
			notes = append(notes, note)
			continue
		}
		targets = append(targets, t)
	}
	if len(notes) > 0 {
		spec.Targets = targets
	}
	return spec, notes
}
