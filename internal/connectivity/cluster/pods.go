package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

const lookEvery = 500 * time.Millisecond

// start creates pods and waits until each is done or failed. It returns the pods that are done.
func (r *Runner) start(
	ctx context.Context, pods []*corev1.Pod, within time.Duration, done func(*corev1.Pod) bool,
) ([]*corev1.Pod, []connectivity.Untried, error) {
	var untried []connectivity.Untried
	var order []string
	waiting := map[string]*corev1.Pod{}
	for _, p := range pods {
		made, err := r.Client.CoreV1().Pods(Namespace).Create(ctx, p, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) || err != nil && ctx.Err() != nil {
			return nil, nil, fmt.Errorf("create a pod: %w", err) // further requests would fail too
		}
		if err != nil {
			untried = append(untried, connectivity.Untried{
				Node: p.Spec.NodeName, Reason: "its pod was not created: " + err.Error(),
			})
			continue
		}
		order, waiting[made.Name] = append(order, made.Name), made
	}
	finished := map[string]*corev1.Pod{}
	selector := Label + "=" + pods[0].Labels[Label]
	err := wait.PollUntilContextTimeout(ctx, lookEvery, within, true,
		func(ctx context.Context) (bool, error) {
			list, err := r.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{
				LabelSelector: selector,
			})
			if err != nil {
				return false, err
			}
			for i := range list.Items {
				p := &list.Items[i]
				switch {
				case waiting[p.Name] == nil:
				case done(p):
					finished[p.Name] = p
					delete(waiting, p.Name)
				case p.Status.Phase == corev1.PodFailed:
					untried = append(untried, connectivity.Untried{
						Node: p.Spec.NodeName, Reason: "its pod failed: " + state(p),
					})
					delete(waiting, p.Name)
				default:
					waiting[p.Name] = p
				}
			}
			return len(waiting) == 0, nil
		})
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return nil, untried, fmt.Errorf("wait for the pods: %w", cmp.Or(context.Cause(ctx), err))
	}
	var in []*corev1.Pod
	for _, name := range order {
		if p := finished[name]; p != nil {
			in = append(in, p)
		} else if p := waiting[name]; p != nil {
			untried = append(untried, connectivity.Untried{
				Node:   p.Spec.NodeName,
				Reason: fmt.Sprintf("its pod was not ready within %s: %s", within, state(p)),
			})
		}
	}
	return in, untried, nil
}

func state(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
		if t := c.State.Terminated; t != nil {
			return fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode)
		}
	}
	if p.Status.Message != "" {
		return p.Status.Reason + ": " + p.Status.Message
	}
	return "it is " + string(cmp.Or(p.Status.Phase, "not reported by its kubelet"))
}

// Clean removes all objects of all runs, and waits until the pods are deleted. It returns no
// error if there are none. A namespace created by an administrator is kept, empty.
func Clean(ctx context.Context, client kubernetes.Interface) error {
	ns, err := client.CoreV1().Namespaces().Get(ctx, Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if ns.Labels[Label] == "" {
		return fmt.Errorf("the namespace %s has no label %s: nothing in it is removed", Namespace, Label)
	}
	var failed error
	remove := func(err error) {
		if !apierrors.IsNotFound(err) {
			failed = errors.Join(failed, err)
		}
	}
	all := metav1.ListOptions{LabelSelector: Label}
	kept, err := client.CoreV1().Services(Namespace).List(ctx, all)
	remove(err)
	if err == nil {
		for _, s := range kept.Items {
			remove(client.CoreV1().Services(Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
		}
	}
	pods, err := client.CoreV1().Pods(Namespace).List(ctx, all)
	remove(err)
	if err == nil {
		for _, p := range pods.Items {
			remove(client.CoreV1().Pods(Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
				GracePeriodSeconds: ptr.To[int64](1),
			}))
		}
	}
	if failed != nil {
		return failed
	}
	if ns.Labels[Label] == temporary {
		remove(client.CoreV1().Namespaces().Delete(ctx, Namespace, metav1.DeleteOptions{}))
	}
	return errors.Join(failed, gone(ctx, client))
}

func gone(ctx context.Context, client kubernetes.Interface) error {
	var left []corev1.Pod
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: Label})
		if err != nil {
			return false, err
		}
		left = list.Items
		return len(left) == 0, nil
	})
	if len(left) > 0 {
		return fmt.Errorf("%d pods are not gone, such as %s on %s, whose kubelet has to end it: %w",
			len(left), left[0].Name, left[0].Spec.NodeName, err)
	}
	return err
}
