package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	// gatherFor is how long a report waits for what changes at the same time.
	gatherFor = 50 * time.Millisecond
	// writeWithin bounds one attempt, and writeAgain the pause after one that failed. What a node says
	// of a dead one is waited for, so neither is long.
	writeWithin           = 2 * time.Second
	writeAgain, writeLast = 200 * time.Millisecond, time.Second
)

// perNode is how much each Node of the cluster adds to how long a report waits that is not urgent.
// Nodes hear of each other's changes, so what happens at all of them, such as a new address that all
// announce, is written a few times a second in the whole cluster, however many there are.
const perNode, atLeast = 100 * time.Millisecond, time.Second

// reporter keeps the report on the Node as it should be.
type reporter struct {
	self    string
	nodes   Nodes
	patcher NodePatcher
	newest  *kube.Newest[*corev1.Node]
	metrics *agentMetrics
	kick    chan struct{}
	wrote   time.Time // of run alone

	mu   sync.Mutex
	text string // empty: nothing is to be said yet
}

func newReporter(cfg Config, m *agentMetrics) *reporter {
	return &reporter{
		self: cfg.Self, nodes: cfg.Nodes, patcher: cfg.Patcher, newest: kube.NewNewest[*corev1.Node](),
		metrics: m, kick: make(chan struct{}, 1),
	}
}

// tell is given the whole report.
func (r *reporter) tell(report addresses.Report) error {
	text, err := report.MarshalText()
	if err != nil {
		return fmt.Errorf("writing the report on addresses: %w", err)
	}
	r.mu.Lock()
	r.text = string(text)
	r.mu.Unlock()
	r.look()
	return nil
}

// look makes the reporter compare.
func (r *reporter) look() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// run writes until the context ends.
func (r *reporter) run(ctx context.Context) {
	pause := writeAgain
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-r.kick:
			select {
			case <-ctx.Done():
				return
			case <-time.After(gatherFor):
			}
		}
		again = nil
		wait, err := r.write(ctx)
		if err == nil {
			pause = writeAgain
			if wait > 0 {
				again = time.After(wait)
			}
			continue
		}
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "What this node says about addresses is not written; trying again")
			again = time.After(pause)
			pause = min(2*pause, writeLast)
		}
	}
}

// urgent is what somebody acts on. Who announces an address together with others is for people.
func urgent(text string) string {
	report, err := addresses.ParseReport(text)
	if err != nil || text == "" {
		return ""
	}
	report.Held = slices.DeleteFunc(report.Held, func(h addresses.Hold) bool { return h.Epoch == 0 })
	report.Refused = slices.DeleteFunc(report.Refused, func(p addresses.Problem) bool {
		return p.Reason == addresses.NoRouter
	})
	for i := range report.Routers {
		report.Routers[i].Announced = 0
	}
	core, _ := report.MarshalText()
	return string(core)
}

// leisure is how long after the last report the next one waits that is not urgent.
func (r *reporter) leisure() time.Duration {
	all, err := r.nodes.All()
	if err != nil {
		return atLeast
	}
	return max(atLeast, time.Duration(len(all))*perNode)
}

// write patches the Node if it says something else. It returns after how long it is to be called
// again; 0: when there is something new.
func (r *reporter) write(ctx context.Context) (wait time.Duration, err error) {
	r.mu.Lock()
	text := r.text
	r.mu.Unlock()
	cached := r.nodes.Own()
	if cached == nil || text == "" {
		return 0, nil // the Node's event comes, or the first report
	}
	node := r.newest.Of(cached)
	said := node.Annotations[addresses.ReportAnnotation]
	if said == text {
		return 0, nil
	}
	if wait := time.Until(r.wrote.Add(r.leisure())); wait > 0 && urgent(said) == urgent(text) {
		return wait, nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "annotations": map[string]string{addresses.ReportAnnotation: text},
	}})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	patched, err := r.patcher.Patch(ctx, r.self, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		r.metrics.reports.WithLabelValues("error").Inc()
		return 0, fmt.Errorf("patching the annotation %s of Node %s: %w", addresses.ReportAnnotation, r.self, err)
	}
	r.metrics.reports.WithLabelValues("success").Inc()
	r.wrote = time.Now()
	r.newest.Wrote(patched)
	return 0, nil
}
