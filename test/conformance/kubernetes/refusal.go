//go:build linux

package main

import (
	"context"
	"os"
	"regexp"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/controller"
)

const (
	lookEvery = time.Second
	// refusedFor is how long a Service has to ask for what can't be, by underlay-ccm's word, before
	// its spec ends. A spec may pass in spite of that, by the chance that two nodes choose the same
	// pod.
	refusedFor = 5 * time.Second
)

// watch looks whether underlay-ccm refuses a Service of a spec, and ends the spec's process then.
// The function that it returns ends the looking, and says what was refused; empty: nothing.
func (r *runner) watch(ctx context.Context, id string, s spec, process *os.Process) func() string {
	if !s.is(labelLoadBalancer) {
		return func() string { return "" }
	}
	ctx, cancel := context.WithCancel(ctx)
	var output string
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			message, since := r.refusal(ctx, id)
			if message != "" {
				output = message // also if the spec asks for something else a moment later
			}
			if since > refusedFor {
				// ginkgo cleans up after the spec then.
				_ = process.Signal(syscall.SIGINT)
				return
			}
		}
	})
	return func() string {
		cancel()
		looking.Wait()
		return output
	}
}

// refusal is what underlay-ccm says about a Service of a run whose load balancer can't be as it
// asks, and for how long; empty: nothing.
func (r *runner) refusal(ctx context.Context, id string) (message string, since time.Duration) {
	namespaces, err := r.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "e2e-run=" + id})
	if err != nil {
		return "", 0 // it looks again
	}
	for _, n := range namespaces.Items {
		services, err := r.client.CoreV1().Services(n.Name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", 0
		}
		for _, s := range services.Items {
			c := meta.FindStatusCondition(s.Status.Conditions, controller.ConditionAccepted)
			if s.Spec.Type == corev1.ServiceTypeLoadBalancer && c != nil &&
				c.Status == metav1.ConditionFalse && c.Reason == lb.ReasonUnsupported {
				return withoutValues(c.Message), time.Since(c.LastTransitionTime.Time)
			}
		}
	}
	return "", 0
}

// value is a field's in a message; some have addresses that are others each time.
var value = regexp.MustCompile(`="[^"]*"`)

func withoutValues(message string) string { return value.ReplaceAllString(message, "") }
