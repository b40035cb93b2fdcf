//go:build linux

package packets

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// joinStages are the conditions of a Node for running pods.
func joinStages() []joinStage {
	return []joinStage{
		{"podCIDRs", func(n *corev1.Node) bool { return len(n.Spec.PodCIDRs) > 0 }},
		{"provider ID", func(n *corev1.Node) bool { return n.Spec.ProviderID != "" }},
		{"no taint", func(n *corev1.Node) bool { return !kube.Tainted(n, cloudproviderapi.TaintExternalCloudProvider) }},
		{"network", func(n *corev1.Node) bool {
			c := kube.Condition(n, corev1.NodeNetworkUnavailable)
			return c != nil && c.Status == corev1.ConditionFalse
		}},
	}
}

type joinStage struct {
	name string
	has  func(*corev1.Node) bool
}

// followJoin logs how long a Node takes to each stage from its creation, by the clock of a watcher.
// It is called before the machine joins; told waits for the end.
func followJoin(t *testing.T, f *netlab.Lab, name string) (told func()) {
	t.Helper()
	w, err := f.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var created time.Time
	after := map[string]time.Duration{}
	var ended sync.WaitGroup
	ended.Go(func() {
		for e := range w.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			mu.Lock()
			if created.IsZero() {
				created = time.Now()
			}
			for _, s := range joinStages() {
				if _, seen := after[s.name]; !seen && s.has(n) {
					after[s.name] = time.Since(created)
				}
			}
			mu.Unlock()
		}
	})
	return func() {
		t.Helper()
		defer ended.Wait()
		defer w.Stop()
		await(t, name+" is open for pods", func() string {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range joinStages() {
				if _, seen := after[s.name]; !seen {
					return "it has had nothing of the stage " + s.name
				}
			}
			return ""
		})
		mu.Lock()
		defer mu.Unlock()
		var parts []string
		for _, s := range joinStages() {
			parts = append(parts, fmt.Sprintf("%s after %.2f s", s.name, after[s.name].Seconds()))
		}
		t.Logf("Node %s: %s", name, strings.Join(parts, ", "))
	}
}
