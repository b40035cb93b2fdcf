//go:build linux

package kubeadm

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// Nodes are the cluster's Nodes.
func (w *TestCluster) Nodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	err := w.Get(ctx, &list, "nodes")
	return list.Items, err
}

// AwaitReady waits until there are exactly count Nodes, all ready, with podCIDRs of both families
// and their routes.
func (w *TestCluster) AwaitReady(count int) {
	w.T.Helper()
	w.Await(fmt.Sprintf("%d ready Nodes", count), func(ctx context.Context) error {
		nodes, err := w.Nodes(ctx)
		if err != nil {
			return err
		}
		if len(nodes) != count {
			return fmt.Errorf("there are %d", len(nodes))
		}
		for _, n := range nodes {
			if err := Served(&n); err != nil {
				return err
			}
		}
		return nil
	})
}

// Served returns an error that names what a Node lacks to run pods.
func Served(n *corev1.Node) error {
	unavailable := kube.Condition(n, corev1.NodeNetworkUnavailable)
	switch {
	case len(n.Spec.PodCIDRs) != 2:
		return fmt.Errorf("%s has the podCIDRs %v", n.Name, n.Spec.PodCIDRs)
	case !kube.Ready(n) || unavailable == nil || unavailable.Status != corev1.ConditionFalse:
		return fmt.Errorf("%s has the conditions %+v", n.Name, n.Status.Conditions)
	}
	return nil
}

// Pods returns the pods with a label that are not being deleted.
func (w *TestCluster) Pods(ctx context.Context, label string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := w.Get(ctx, &list, "pods -l "+label); err != nil {
		return nil, err
	}
	var found []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

// AwaitPods waits until count pods with a label are ready, on different nodes, and returns them.
func (w *TestCluster) AwaitPods(label string, count int) (pods []corev1.Pod) {
	w.T.Helper()
	w.Await(fmt.Sprintf("%d pods %s", count, label), func(ctx context.Context) (err error) {
		if pods, err = w.Pods(ctx, label); err != nil {
			return err
		}
		ready, where := 0, map[string]bool{}
		for _, p := range pods {
			where[p.Spec.NodeName] = true
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != count || len(pods) != count || len(where) != count {
			return fmt.Errorf("%d are there, %d are ready, on the nodes %v", len(pods), ready, where)
		}
		return nil
	})
	return pods
}

// Addresses returns a pod's addresses, IPv4 first.
func Addresses(p *corev1.Pod) (found []netip.Addr) {
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			found = append(found, a)
		}
	}
	return found
}

// Inside opens the network namespace of a pod, which is found by its address.
func (w *TestCluster) Inside(p *corev1.Pod) *netns.Namespace {
	w.T.Helper()
	folder := filepath.Join(w.Servers[p.Spec.NodeName].Root(), "run/netns")
	files, err := os.ReadDir(folder)
	if err != nil {
		w.T.Fatal(err)
	}
	for _, f := range files {
		ns, err := netns.At(filepath.Join(folder, f.Name()))
		if err != nil {
			continue // it was just deleted
		}
		if out, err := ns.Run(w.T.Context(), "ip", "-4", "-oneline", "address", "show"); err == nil && strings.Contains(out, " "+p.Status.PodIP+"/") {
			w.T.Cleanup(ns.Close)
			return ns
		}
		ns.Close()
	}
	w.T.Fatalf("no network namespace on %s has the address %s of pod %s", p.Spec.NodeName, p.Status.PodIP, p.Name)
	return nil
}
