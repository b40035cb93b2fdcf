package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/underlay-ccm/underlay/test/demo/state"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// lookEvery is how often the cloud, which can't be watched, is read.
const lookEvery = 50 * time.Millisecond

// change is an event of the API server's watch, with its time.
type change struct {
	at    time.Time
	apply func(*state.State)
}

// observer reads the real state: Nodes and Services by watching the API server, the rest from the
// simulated cloud directly, not through its API or request log.
type observer struct {
	cluster *cluster.Cluster
	changes chan change
}

// observe starts the watches, until ctx ends.
func observe(ctx context.Context, c *cluster.Cluster) (*observer, error) {
	o := &observer{cluster: c, changes: make(chan change, 256)}
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0)
	nodes := factory.Core().V1().Nodes().Informer()
	services := factory.Core().V1().Services().Informer()
	_, err1 := nodes.AddEventHandler(handler(ctx, o,
		func(n *corev1.Node) func(*state.State) {
			seen := state.NodeOf(n)
			return func(w *state.State) { w.SetNode(seen) }
		},
		func(n *corev1.Node) func(*state.State) {
			return func(w *state.State) { w.RemoveNode(n.Name) }
		}))
	_, err2 := services.AddEventHandler(handler(ctx, o,
		func(s *corev1.Service) func(*state.State) {
			seen := state.ServiceOf(s)
			if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
				return func(w *state.State) { w.RemoveService(seen.Name) }
			}
			return func(w *state.State) { w.SetService(seen) }
		},
		func(s *corev1.Service) func(*state.State) {
			return func(w *state.State) { w.RemoveService(s.Name) }
		}))
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("watching the API server: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, services.HasSynced) {
		return nil, fmt.Errorf("watching the API server: %w", context.Cause(ctx))
	}
	return o, nil
}

// handler forwards the events of objects of one kind, in their order.
func handler[T any](
	ctx context.Context, o *observer, set, remove func(T) func(*state.State),
) cache.ResourceEventHandler {
	tell := func(obj any, how func(T) func(*state.State)) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		object, ok := obj.(T)
		if !ok {
			return
		}
		select {
		case o.changes <- change{at: time.Now(), apply: how(object)}:
		case <-ctx.Done():
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(obj, set) },
		UpdateFunc: func(_, obj any) { tell(obj, set) },
		DeleteFunc: func(obj any) { tell(obj, remove) },
	}
}

// look records the current state of the cloud.
func (o *observer) look(w *state.State) error {
	network, ok := o.cluster.Cloud.Network(o.cluster.Network.ID)
	if !ok {
		return fmt.Errorf("the network %s is gone from the cloud", o.cluster.Network.Name)
	}
	w.SetCloud(state.CloudOf(o.cluster.Cloud.Servers(), network, o.cluster.Cloud.LoadBalancers()))
	return nil
}

// count reads the request log of the cloud and the audit log of the API server.
func (o *observer) count(w *state.State) error {
	audit, err := o.cluster.ControlPlane.Audit()
	if err != nil {
		return err
	}
	w.Requests, w.Writes = state.CountRequests(o.cluster.Cloud.Requests()), state.CountWrites(audit)
	return nil
}
