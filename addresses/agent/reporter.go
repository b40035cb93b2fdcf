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
	// gatherFor is the time to batch simultaneous changes into one report, and writeEvery the minimum
	// time between attempts to write one after a change.
	gatherFor, writeEvery = 5 * time.Millisecond, 50 * time.Millisecond
	// writeWithin limits an attempt; writeAgain and writeLast are the first and the longest pause
	// after a failure. All are short: failover waits for reports about a dead node.
	writeWithin           = 2 * time.Second
	writeAgain, writeLast = 200 * time.Millisecond, time.Second
)

// A report that is not urgent waits perNode for each Node of the cluster, and atLeast. Agents
// receive each other's changes, so a change on all nodes, such as a new address that all announce,
// causes at most about ten writes per second in the cluster.
const perNode, atLeast = 100 * time.Millisecond, time.Second

type reporter struct {
	self    string
	nodes   Nodes
	patcher NodePatcher
	newest  *kube.Newest[*corev1.Node]
	kick    chan struct{}
	// used by run only: the last success, and the last attempt
	wrote, tried time.Time

	mu   sync.Mutex
	text string // empty: no report yet
}

func newReporter(cfg Config) *reporter {
	return &reporter{
		self: cfg.Self, nodes: cfg.Nodes, patcher: cfg.Patcher, newest: kube.NewNewest[*corev1.Node](),
		kick: make(chan struct{}, 1),
	}
}

func (r *reporter) publish(report addresses.Report) error {
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

func (r *reporter) look() { notify(r.kick) }

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
			case <-time.After(max(gatherFor, time.Until(r.tried.Add(writeEvery)))):
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
			klog.FromContext(ctx).Error(err,
				"This node's report about addresses is not written; trying again")
			again = time.After(pause)
			pause = min(2*pause, writeLast)
		}
	}
}

// urgent returns the part of a report that the manager acts on: not which nodes announce an address
// together, which is for users.
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

// write patches the Node if its annotation differs. It returns the time until the next call; 0:
// after the next change.
func (r *reporter) write(ctx context.Context) (wait time.Duration, err error) {
	r.mu.Lock()
	text := r.text
	r.mu.Unlock()
	cached := r.nodes.Own()
	if cached == nil || text == "" {
		return 0, nil // the Node's event or the first report triggers a write
	}
	node := r.newest.Of(cached)
	published := node.Annotations[addresses.ReportAnnotation]
	if published == text {
		return 0, nil
	}
	all, _ := r.nodes.All() // empty before they are read
	pause := max(atLeast, time.Duration(len(all))*perNode)
	if wait := time.Until(r.wrote.Add(pause)); wait > 0 && urgent(published) == urgent(text) {
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
	r.tried = time.Now()
	patched, err := r.patcher.Patch(ctx, r.self, types.MergePatchType, body, metav1.PatchOptions{},
		"status")
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0,
			fmt.Errorf("patching the annotation %s of Node %s: %w", addresses.ReportAnnotation, r.self, err)
	}
	r.wrote = time.Now()
	r.newest.Wrote(patched)
	return 0, nil
}
