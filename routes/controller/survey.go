package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/routes"
)

// Sources are where a survey looks.
type Sources struct {
	Client   kubernetes.Interface
	Table    routes.Table
	Gateways Gateways
	// Departed may be nil, see Config.
	Departed func() []Departed
}

// Whose tells, for routes.Owned, whose servers routes lead to, as far as one look
// at the servers and the stored ledger can tell.
func Whose(g routes.Gateways, departed []Departed) func(routes.Route) routes.Owner {
	known := members{seen: map[string]bool{}}
	known.see(g)
	return known.whose(g, departed)
}

// Plannable is a Node as package routes sees it.
func Plannable(node *corev1.Node, g routes.Gateways) routes.Node { return plannable(node, g) }

// Survey looks once at the cluster and its network, for routes.Preflight: before
// a manager starts, or whenever somebody wants to know. What it can't know, the
// limits, is left to the caller.
func Survey(ctx context.Context, from Sources, layout routes.Layout) (routes.Situation, error) {
	// The routes first: every gateway of theirs is in the list of servers then.
	have, err := from.Table.List(ctx)
	if err != nil {
		return routes.Situation{}, fmt.Errorf("listing the network's routes: %w", err)
	}
	list, err := from.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return routes.Situation{}, fmt.Errorf("listing Nodes: %w", err)
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	gateways, err := from.Gateways.Gateways(ctx, nodes, true)
	if err != nil {
		return routes.Situation{}, fmt.Errorf("finding the Nodes' servers: %w", err)
	}
	if gateways.Doubt != nil {
		return routes.Situation{}, gateways.Doubt
	}
	var departed []Departed
	if from.Departed != nil {
		departed = from.Departed()
	}
	return routes.Situation{
		Layout: layout, Have: have, Whose: Whose(gateways, departed),
		Nodes: len(nodes), Attached: gateways.Attached,
	}, nil
}
