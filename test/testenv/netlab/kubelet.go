//go:build linux

package netlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// Kubelets run the pods of a namespace that others create, as the machines' kubelets would:
// attached by the CNI plugins, with their command and arguments, and a log for each. Instead of
// images, one program runs for the first word of each command.
type Kubelets struct {
	lab                *Lab
	namespace, program string
	running            map[string]*container // by the pod's name
	done               chan struct{}

	mu   sync.Mutex
	logs map[string]string // the paths, also of deleted pods
	errs error
}

// container holds the running parts of a pod.
type container struct {
	pod   *Pod
	run   *process.Process
	ended bool
}

// kubeletsLook is the interval at which they list pods.
const kubeletsLook = 100 * time.Millisecond

// RunPodsOf runs the pods of a namespace until ctx ends, then ends those that are left. Wait
// returns after that.
func (f *Lab) RunPodsOf(ctx context.Context, namespace, program string) *Kubelets {
	k := &Kubelets{
		lab: f, namespace: namespace, program: program,
		running: map[string]*container{}, logs: map[string]string{}, done: make(chan struct{}),
	}
	go k.loop(ctx)
	return k
}

// Wait waits for the end and returns the errors.
func (k *Kubelets) Wait() error {
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.errs
}

// Log returns the output of a pod's program, whether or not the pod still exists.
func (k *Kubelets) Log(pod string) ([]byte, error) {
	k.mu.Lock()
	path := k.logs[pod]
	k.mu.Unlock()
	if path == "" {
		return nil, fmt.Errorf("pod %s has not been run", pod)
	}
	return os.ReadFile(path)
}

func (k *Kubelets) loop(ctx context.Context) {
	defer close(k.done)
	tick := time.NewTicker(kubeletsLook)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := k.pass(ctx); err != nil && ctx.Err() == nil {
			k.mu.Lock()
			k.errs = errors.Join(k.errs, err)
			k.mu.Unlock()
			break
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	for name := range k.running {
		k.end(ctx, name)
	}
}

func (k *Kubelets) pass(ctx context.Context) error {
	list, err := k.lab.Client.CoreV1().Pods(k.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		object := &list.Items[i]
		c := k.running[object.Name]
		switch {
		case object.DeletionTimestamp != nil:
			k.end(ctx, object.Name)
			err = k.lab.Client.CoreV1().Pods(k.namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
				GracePeriodSeconds: ptr.To[int64](0),
			})
		case c == nil && object.Status.Phase == corev1.PodPending:
			err = k.begin(ctx, object)
		case c != nil && c.run.Ended() && !c.ended:
			c.ended = true
			phase := corev1.PodSucceeded
			if c.run.ExitCode() != 0 {
				phase = corev1.PodFailed
			}
			err = k.report(ctx, object.Name, corev1.PodStatus{Phase: phase})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("pod %s/%s: %w", k.namespace, object.Name, err)
		}
	}
	return nil
}

func (k *Kubelets) begin(ctx context.Context, object *corev1.Pod) error {
	m := k.lab.Machine(object.Spec.NodeName)
	if m == nil {
		return fmt.Errorf("no machine %q", object.Spec.NodeName)
	}
	space, err := netns.Open()
	if err != nil {
		return err
	}
	p := &Pod{Name: object.Name, Machine: m, Namespace: space}
	reported, err := m.cni(ctx, "ADD", p)
	if err != nil {
		space.Close()
		return err
	}
	for _, ip := range reported.IPs {
		if a := ip.Address.Addr(); a.Is4() {
			p.IPv4 = a
		} else {
			p.IPv6 = a
		}
	}
	only := object.Spec.Containers[0]
	args := append([]string{"--net=" + space.Path(), "--", k.program}, only.Command[1:]...)
	run, err := process.Start(process.Command{
		Name: "pod-" + object.Name, Path: "nsenter", Args: append(args, only.Args...), Dir: k.lab.options.Dir,
	})
	if err != nil {
		space.Close()
		return err
	}
	k.running[object.Name] = &container{pod: p, run: run}
	k.mu.Lock()
	k.logs[object.Name] = run.Log
	k.mu.Unlock()
	return k.report(ctx, object.Name, p.status())
}

func (k *Kubelets) report(ctx context.Context, name string, s corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"status": s})
	if err != nil {
		return err
	}
	_, err = k.lab.Client.CoreV1().Pods(k.namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// end kills a pod's program and removes its interface.
func (k *Kubelets) end(ctx context.Context, name string) {
	c := k.running[name]
	if c == nil {
		return
	}
	delete(k.running, name)
	c.run.Kill()
	_, _ = c.pod.Machine.cni(ctx, "DEL", c.pod) // the interface is deleted with the namespace
	c.pod.Namespace.Close()
}
