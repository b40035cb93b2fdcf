package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// Pods with addresses from their servers' own /64 are the targets of a Service that requests this,
// and their Nodes are annotated for the agents, until the Service is deleted.
func TestPodsAreTargets(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 100 * time.Millisecond})
	config := c.CloudConfig() + "  podTargetSources: [\"2001:db8:1b::/48\"]\npools:\n  - {name: ipv4, cidr: 10.244.0.0/16}\n  - {name: own, source: node}\n"
	startManager(t, c, cluster.ManagerOptions{Config: config, Args: []string{"--cluster-cidr=10.244.0.0/16"}})
	addMachine(t, c, "node-0")
	addMachine(t, c, "node-1")
	var pods []netip.Addr
	eventually(t, 30*time.Second, "two Nodes have prefixes out of their own ones", func(ctx context.Context) (bool, string) {
		pods = nil
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, n := range list.Items {
			for _, text := range n.Spec.PodCIDRs {
				if p := netip.MustParsePrefix(text); p.Addr().Is6() {
					pods = append(pods, p.Addr().Next())
				}
			}
		}
		return len(pods) == 2, fmt.Sprint(pods)
	})

	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"underlay.dev/targets": "pods"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: new(bool),
			IPFamilies:     []corev1.IPFamily{corev1.IPv6Protocol},
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			Ports:          []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	svc, err := c.Client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slice := podSlice(pods)
	if slice, err = c.Client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	opened := func(ctx context.Context) (found []string) {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return []string{err.Error()}
		}
		for _, n := range list.Items {
			if text, is := n.Annotations[podingress.Annotation(string(svc.UID))]; is {
				found = append(found, text)
			}
		}
		return found
	}
	eventually(t, 30*time.Second, "pods are the targets", func(ctx context.Context) (bool, string) {
		all := c.Cloud.DataPlane().LoadBalancers
		if len(all) != 1 {
			return false, fmt.Sprint(len(all), " load balancers")
		}
		for _, target := range all[0].Targets {
			if !slices.Contains(pods, target.Address) {
				return false, fmt.Sprint(target)
			}
		}
		found := opened(ctx)
		return len(all[0].Targets) == 2 && len(found) == 2, fmt.Sprint(all[0].Targets, found)
	})
	plane := c.Cloud.DataPlane().LoadBalancers[0]
	for _, text := range opened(t.Context()) {
		i, err := podingress.Parse(text)
		if err != nil || len(i.Sources) != 2 ||
			!slices.Contains(i.Sources, netip.PrefixFrom(plane.IPv6, 128)) || len(i.Endpoints) != 1 ||
			i.Endpoints[0].Port() != 8080 {
			t.Errorf("opened: %s, %v", text, err)
		}
	}
	if s := plane.Services[0]; s.DestinationPort != 8080 || s.HealthCheck.Port != 8080 {
		t.Errorf("the listener is %+v", s)
	}

	slice.Endpoints = slice.Endpoints[:1]
	if _, err = c.Client.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "a pod that is gone is no target", func(ctx context.Context) (bool, string) {
		targets, found := c.Cloud.DataPlane().LoadBalancers[0].Targets, opened(ctx)
		return len(targets) == 1 && len(found) == 1, fmt.Sprint(targets, found)
	})
	if err := c.Client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "nothing is left", func(ctx context.Context) (bool, string) {
		n, found := len(c.Cloud.LoadBalancers()), opened(ctx)
		return n == 0 && len(found) == 0, fmt.Sprint(n, found)
	})
	if r := refused(c); len(r) > 0 {
		t.Errorf("the cloud refused writes: %q", r)
	}
	for _, e := range audited(t, c, "") {
		if e.Code == http.StatusForbidden {
			t.Errorf("forbidden: %s", e)
		}
	}
}

// podSlice has a ready pod on each of node-0 and node-1. Nothing runs there.
func podSlice(pods []netip.Addr) *discoveryv1.EndpointSlice {
	port := int32(8080)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-by-hand", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "test"}},
		AddressType: discoveryv1.AddressTypeIPv6, Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: &port}},
	}
	for i, a := range pods {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.String()}, NodeName: new(fmt.Sprint("node-", i)), Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	return slice
}
