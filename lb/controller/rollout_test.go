package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// replaceAllNodes deletes the nodes and adds others on other servers.
func (w *world) replaceAllNodes(n int) {
	w.t.Helper()
	for i := 1; i <= n; i++ {
		if err := w.api.CoreV1().Nodes().Delete(context.Background(), fmt.Sprint("node-", i), metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node(fmt.Sprint("new-", i), 100+i), metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.settle()
}

// All nodes are replaced at once: the old targets stay until a new one is healthy, or until all new
// ones had their time, also over a restart, and also if the Service is refused.
func TestOldTargetsStayUntilNewOnesAreHealthy(t *testing.T) {
	for name, c := range map[string]struct {
		held    bool
		healthy bool
		within  time.Duration
	}{
		"healthy":             {healthy: true, within: 20 * time.Second},
		"never healthy":       {within: 3 * time.Minute},
		"the Service is held": {held: true, healthy: true, within: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(2), func(w *world) {
				w.create(service("web"))
				w.healthy(2, 0)
				if c.held {
					w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9" })
				}
				w.cloud.counts()
				w.replaceAllNodes(2)
				w.expect("nodes are replaced", "add server 101", "add server 102")
				time.Sleep(20 * time.Second)
				w.restart()
				w.expect("none is healthy yet")
				if c.healthy {
					w.healthy(3, 1) // by their IDs: the old ones and one of the new
				}
				time.Sleep(c.within)
				w.settle()
				w.expect("then", "remove server 1", "remove server 2")
				w.later()
				w.expect("after that")
			})
		})
	}
}
