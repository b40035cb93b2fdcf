//go:build linux

package netlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/test/testenv/echo"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// pollEvery is the interval of polls.
const pollEvery = 50 * time.Millisecond

// EchoPort is where every pod runs its Echo, over TCP and UDP. At TalkPort it echoes all data over
// TCP while a connection is open.
const (
	EchoPort = 8080
	TalkPort = 8081
)

// Pod is a namespace that the CNI plugins attached to its machine, and an object of the API, so
// that Services find it. It runs an Echo under its name on EchoPort.
type Pod struct {
	Name      string
	Machine   *Machine
	Namespace *netns.Namespace
	IPv4      netip.Addr
	IPv6      netip.Addr

	result json.RawMessage // the result of the plugins
	echo   *Echo
	talk   *echo.Repeater
}

// RunPod starts a pod on a machine, as scheduler and kubelet do, and returns when it is ready. It
// is in Namespace "default".
func (f *Lab) RunPod(
	ctx context.Context, name, machine string, labels map[string]string,
) (*Pod, error) {
	m := f.Machine(machine)
	if m == nil {
		return nil, fmt.Errorf("pod %s: no machine %q", name, machine)
	}
	p := &Pod{Name: name, Machine: m}
	if err := p.start(ctx, labels); err != nil {
		if p.Namespace != nil {
			p.release()
		}
		return nil, fmt.Errorf("pod %s: %w", name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[name] = p
	return p, nil
}

func (p *Pod) start(ctx context.Context, labels map[string]string) (err error) {
	pods := p.Machine.lab.Client.CoreV1().Pods(metav1.NamespaceDefault)
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: p.Machine.Name, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "echo", Image: "echo", Ports: []corev1.ContainerPort{{Name: "echo", ContainerPort: EchoPort}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if p.Namespace, err = netns.Open(); err != nil {
		return err
	}
	reported, err := p.Machine.cni(ctx, "ADD", p)
	if err != nil {
		return err
	}
	for _, ip := range reported.IPs {
		if addr := ip.Address.Addr(); addr.Is4() {
			p.IPv4 = addr
		} else {
			p.IPv6 = addr
		}
	}
	if p.echo, err = serve(ctx, p.Namespace, p.Name, EchoPort); err != nil {
		return err
	}
	talk, err := p.Namespace.Listen(ctx, "tcp", fmt.Sprintf(":%d", TalkPort))
	if err != nil {
		return err
	}
	p.talk = echo.Repeat(talk)
	return p.Report(ctx)
}

// Report sets the pod's condition Ready, as its kubelet does, also after the control plane has
// marked the machine as lost and its pods as not ready.
func (p *Pod) Report(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"status": p.status()})
	if err != nil {
		return err
	}
	pods := p.Machine.lab.Client.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err = pods.Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("say that pod %s is ready: %w", p.Name, err)
	}
	return nil
}

// Addrs are the pod's addresses, IPv4 first.
func (p *Pod) Addrs() []netip.Addr {
	var addrs []netip.Addr
	for _, a := range []netip.Addr{p.IPv4, p.IPv6} {
		if a.IsValid() {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

func (p *Pod) status() corev1.PodStatus {
	s := corev1.PodStatus{Phase: corev1.PodRunning}
	for _, a := range p.Addrs() {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: a.String()})
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodScheduled,
	} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		})
	}
	return s
}

// Delete ends the pod: its interface and its object are deleted, and it no longer replies.
func (p *Pod) Delete(ctx context.Context) error {
	f := p.Machine.lab
	f.mu.Lock()
	delete(f.pods, p.Name)
	f.mu.Unlock()
	_, detached := p.Machine.cni(ctx, "DEL", p)
	p.release()
	err := f.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
	})
	return errors.Join(detached, err)
}

// release closes the process's handles of the pod.
func (p *Pod) release() {
	if p.echo != nil {
		p.echo.Close()
	}
	if p.talk != nil {
		p.talk.Close()
	}
	p.Namespace.Close()
}
