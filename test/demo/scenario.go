package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/demo/state"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// step is a change of the cluster, and the expected state soon after.
type step struct {
	name  string // in the summary
	title string
	note  string
	limit time.Duration
	do    func(context.Context, *cluster.Cluster) error
	want  state.Want
}

const (
	service    = "web"
	namespace  = metav1.NamespaceDefault
	routeLimit = 100 // the cloud's own default
)

// foreign is a route that the user added to the network for another purpose, for example to an
// office.
func foreign() state.Route {
	return state.Route{Dst: netip.MustParsePrefix("192.168.178.0/24"), Via: netip.MustParseAddr("10.0.0.250")}
}

// begin is the step before there is a state.
func begin() step {
	return step{
		name: "start", title: "A control plane, a cloud, and underlay-ccm between them",
		limit: 2 * time.Minute,
	}
}

// scenario is all steps after that, in order.
func scenario() []step {
	three := []string{"node-1", "node-2", "node-3"}
	four := append(three[:3:3], "node-4")
	left := []string{"node-1", "node-3", "node-4"}
	return []step{
		{
			name: "join", title: "Three machines join",
			note:  "times since the machine joined",
			limit: time.Minute,
			do:    join(three...),
			want:  state.Want{Machines: three, Foreign: foreign()},
		},
		{
			name: "service", title: "A Service of type LoadBalancer, externalTrafficPolicy: Local",
			note:  "times since the Service was made; the cloud calls a target healthy 2 s after it came",
			limit: time.Minute,
			do:    expose,
			want:  state.Want{Machines: three, Service: service, Foreign: foreign()},
		},
		{
			name: "grow", title: "A fourth machine joins",
			note:  "times since the machine joined",
			limit: time.Minute,
			do:    join("node-4"),
			want:  state.Want{Machines: four, Service: service, Foreign: foreign()},
		},
		{
			name: "lose", title: "The server of node-2 is deleted in the cloud",
			note:  "times since the server was deleted; its kubelet is silent from then on",
			limit: 90 * time.Second,
			do:    func(_ context.Context, c *cluster.Cluster) error { return c.DeleteServer("node-2") },
			want:  state.Want{Machines: left, Service: service, Foreign: foreign()},
		},
		{
			name: "books", title: "What it cost",
			limit: 15 * time.Second,
			do:    func(context.Context, *cluster.Cluster) error { return nil },
			want:  state.Want{Machines: left, Service: service, Foreign: foreign(), Books: true},
		},
	}
}

// doctorStep checks the cluster as a user would.
func doctorStep() step {
	return step{
		name: "doctor", title: "What underlayctl doctor says",
		note:  "no agent and no kube-proxy runs on these machines: their kubelets report pods' network as ready",
		limit: 30 * time.Second,
	}
}

// packetsStep is the last one, only with root. It has a cluster of its own, whose machines are
// network namespaces.
func packetsStep() step {
	return step{
		name: "packets", title: "Packets: pods on different machines, and a client through a load balancer",
		note:  "a second cluster, whose machines are network namespaces with the real agent, kube-proxy and CNI plugins",
		limit: 3 * time.Minute,
	}
}

// everyMachine are all machines of the scenario.
func everyMachine() []string { return []string{"node-1", "node-2", "node-3", "node-4"} }

func join(machines ...string) func(context.Context, *cluster.Cluster) error {
	return func(ctx context.Context, c *cluster.Cluster) error {
		for _, name := range machines {
			if err := c.AddMachine(ctx, cluster.Machine{Name: name, Location: "fsn1"}); err != nil {
				return err
			}
		}
		return nil
	}
}

// expose creates the Service.
func expose(ctx context.Context, c *cluster.Cluster) error {
	_, err := c.Client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			Selector:              map[string]string{"app": service},
			Ports:                 []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making the Service %s: %w", service, err)
	}
	return nil
}

// cloudOptions make the simulated cloud about as slow as the real one.
func cloudOptions() hcloudsim.Options {
	return hcloudsim.Options{
		Latency:      20 * time.Millisecond,
		ActionTime:   300 * time.Millisecond,
		ActionJitter: 300 * time.Millisecond,
		HealthyAfter: 2 * time.Second,
		RouteLimit:   routeLimit,
	}
}
