package e2e_test

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// watchNodes calls see with every state of every Node, one after the other, until the returned
// function or the test's end ends it. The API server closes a watch whose reader is slow; it then
// continues from the last version, because a state that was missed would prove nothing.
func watchNodes(t *testing.T, c *cluster.Cluster, see func(*corev1.Node)) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		see(&list.Items[i])
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Client.CoreV1().Nodes().Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var shown sync.WaitGroup
	shown.Go(func() {
		for e := range w.ResultChan() {
			switch node, ok := e.Object.(*corev1.Node); {
			case !ok:
				t.Errorf("the watch of Nodes broke off: %v", e.Object)
			case e.Type != watch.Deleted:
				see(node)
			}
		}
	})
	end = sync.OnceFunc(func() { cancel(); shown.Wait() })
	t.Cleanup(end)
	return end
}
