// Package directorytest publishes the directory of Nodes in tests.
package directorytest

import (
	"context"
	"sync"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/directory"
)

// Publish runs a Publisher until the test ends.
func Publish(t testing.TB, client kubernetes.Interface) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	p, err := directory.NewPublisher(client, factory.Core().V1().Nodes())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	})
}
