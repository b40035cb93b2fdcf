//go:build linux

package netlab

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// ShowAgents applies the agents' DaemonSet and acts as its scheduler and kubelets: each pod that
// Kubernetes creates for it represents the agent that already runs on its machine, and is ready if
// the readiness probe of that agent succeeds. It returns when all pods are ready.
func (f *Lab) ShowAgents(ctx context.Context) error {
	manifests, err := cluster.Manifests(ctx)
	if err != nil {
		return err
	}
	err = f.ControlPlane.Apply(ctx, filepath.Join(manifests, "agent", "daemonset.yaml"))
	if err != nil {
		return err
	}
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + agentAccount}
	show := func(ctx context.Context) (bool, error) {
		pods, err := f.Client.CoreV1().Pods(system).List(ctx, ours)
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			if err := f.showAgent(ctx, &pods.Items[i]); err != nil {
				return false, fmt.Errorf("pod %s: %w", pods.Items[i].Name, err)
			}
		}
		set, err := f.Client.AppsV1().DaemonSets(system).Get(ctx, agentAccount, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		s := set.Status
		return s.NumberReady > 0 && s.NumberReady == s.DesiredNumberScheduled, nil
	}
	return wait.PollUntilContextTimeout(ctx, pollEvery, readyWithin, true, show)
}

// showAgent binds a pod to the Node for which the DaemonSet controller created it, and sets the
// pod's condition Ready from the agent's readiness probe.
func (f *Lab) showAgent(ctx context.Context, pod *corev1.Pod) error {
	pods := f.Client.CoreV1().Pods(system)
	only := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	node := only.NodeSelectorTerms[0].MatchFields[0].Values[0]
	machine := f.Machine(node)
	if machine == nil {
		return fmt.Errorf("no machine %q", node)
	}
	if pod.Spec.NodeName == "" {
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
	}
	ready := corev1.ConditionFalse
	if status, _ := machine.Agent(ctx, "/readyz"); status == http.StatusOK {
		ready = corev1.ConditionTrue
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()},
	}
	_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil // the next poll reads the current pod
	}
	return err
}
