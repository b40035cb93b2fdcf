package run

import (
	"context"
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// keepPods acts on pods as a scheduler and kubelets would, as far as the API server shows it, until
// the test ends: each gets a Node, is ready at once, and is removed after its deletion. So rollouts
// complete. No container runs.
func keepPods(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := tend(ctx, client); err != nil && ctx.Err() == nil {
				t.Logf("pods, will try again: %v", err)
			}
		}, 100*time.Millisecond)
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// tend advances every pod by a step.
func tend(ctx context.Context, client kubernetes.Interface) error {
	// From the API server's cache, which costs next to nothing.
	cached := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err1 := client.CoreV1().Nodes().List(ctx, cached)
	pods, err2 := client.CoreV1().Pods("").List(ctx, cached)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var errs []error
	for i := range pods.Items {
		if err := step(ctx, client, &pods.Items[i], nodes.Items); !apierrors.IsNotFound(err) &&
			!apierrors.IsConflict(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func step(
	ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, nodes []corev1.Node,
) error {
	pods := client.CoreV1().Pods(pod.Namespace)
	at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName })
	gone := func() error {
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return gone()
	case pod.Spec.NodeName == "":
		name := placeOf(pod, nodes)
		if name == "" {
			return nil
		}
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: name}}, metav1.CreateOptions{})
	case at < 0: // as the pod garbage collector does, which takes its time
		return gone()
	case pod.Status.Phase != corev1.PodRunning:
		ready := pod.DeepCopy()
		ready.Status = readyStatus(&nodes[at])
		_, err := pods.UpdateStatus(ctx, ready, metav1.UpdateOptions{})
		return err
	}
	return nil
}

// placeOf returns the Node for a pod: the one of a DaemonSet's pod, or any that accepts pods;
// empty: none.
func placeOf(pod *corev1.Pod, nodes []corev1.Node) string {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		return required.NodeSelectorTerms[0].MatchFields[0].Values[0]
	}
	free := slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool {
		return n.Spec.Unschedulable
	})
	if len(free) == 0 {
		return ""
	}
	sum := fnv.New32()
	_, _ = sum.Write([]byte(pod.UID))
	return free[int(sum.Sum32()%1000)%len(free)].Name
}

func readyStatus(node *corev1.Node) corev1.PodStatus {
	s := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Now())}
	for _, c := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		})
	}
	for _, text := range node.Spec.PodCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			// The bridge has the first one.
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: prefix.Addr().Next().Next().String()})
		}
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	return s
}
