//go:build linux

package metallb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

const (
	namespace = "metallb-system"
	// within limits waits for actions of MetalLB.
	within = time.Minute
)

// Accounts are the users of MetalLB's programs at the API server.
var Accounts = []string{"system:serviceaccount:" + namespace + ":controller", "system:serviceaccount:" + namespace + ":speaker"}

// Running is a MetalLB in a lab.
type Running struct {
	metallb    MetalLB
	lab        *netlab.Lab
	controller *process.Process
	speakers   map[string]*process.Process // by machine
	kubeconfig string
	dir        string
}

// Install applies the manifest to a lab on metal and starts the controller. Its webhook, which only
// rejects invalid pools, is unreachable in a lab, and is left out.
func (m MetalLB) Install(ctx context.Context, lab *netlab.Lab) (*Running, error) {
	plane := lab.ControlPlane
	r := &Running{metallb: m, lab: lab, dir: plane.Dir(), speakers: map[string]*process.Process{}}
	if err := plane.Apply(ctx, m.Manifest()); err != nil {
		return nil, fmt.Errorf("install MetalLB: %w", err)
	}
	const webhook = "metallb-webhook-configuration"
	err := lab.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, webhook,
		metav1.DeleteOptions{})
	if err != nil {
		return nil, fmt.Errorf("install MetalLB without its webhook: %w", err)
	}
	if err := r.pod(ctx, "controller", "", netip.Addr{}); err != nil {
		return nil, err
	}
	kubeconfig, err := plane.Kubeconfig(ctx, namespace, "controller")
	if err != nil {
		return nil, err
	}
	r.controller, err = process.Start(process.Command{
		Name: "metallb-controller", Path: m.Program("controller"), Dir: r.dir,
		Args: []string{"--port=0", "--log-level=info", "--webhook-mode=disabled", "--kubeconfig=" + kubeconfig},
		Env: []string{
			"METALLB_NAMESPACE=" + namespace, "METALLB_POD_NAME=controller", "METALLB_ML_SECRET_NAME=memberlist", "METALLB_DEPLOYMENT=controller",
		},
	})
	if err != nil {
		return nil, err
	}
	if r.kubeconfig, err = plane.Kubeconfig(ctx, namespace, "speaker"); err == nil {
		err = r.mountKey(ctx)
	}
	if err != nil {
		r.Stop()
		return nil, fmt.Errorf("install MetalLB: %w", err)
	}
	return r, nil
}

// Stop ends the controller. Speakers end with their machines.
func (r *Running) Stop() { r.controller.Kill() }

// StopController ends the controller as a kubelet does, and waits for it.
func (r *Running) StopController(ctx context.Context) error {
	if err := r.controller.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.controller.Done():
		return nil
	case <-ctx.Done():
		return r.controller.Failure(context.Cause(ctx))
	}
}

// pod creates the object in which a program finds itself, and the speakers each other.
func (r *Running) pod(ctx context.Context, component, node string, ip netip.Addr) error {
	name := component
	if node != "" {
		name += "-" + node
	}
	pods := r.lab.Client.CoreV1().Pods(namespace)
	p, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "metallb", "component": component}},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, AutomountServiceAccountToken: ptr.To(false),
			ServiceAccountName: component,
			Containers:         []corev1.Container{{Name: component, Image: component}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make MetalLB's Pod %s: %w", name, err)
	}
	if !ip.IsValid() {
		return nil
	}
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip.String(), PodIPs: []corev1.PodIP{{IP: ip.String()}},
	}
	if _, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say where MetalLB's Pod %s is: %w", name, err)
	}
	return nil
}

// mountKey writes the Secret that the controller creates for the speakers to a file.
func (r *Running) mountKey(ctx context.Context) error {
	var secret *corev1.Secret
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, within, true,
		func(ctx context.Context) (bool, error) {
			var err error
			secret, err = r.lab.Client.CoreV1().Secrets(namespace).Get(ctx, "memberlist",
				metav1.GetOptions{})
			if r.controller.Ended() {
				return false, r.controller.Failure(r.controller.Died())
			}
			return err == nil, nil
		})
	if err != nil {
		return fmt.Errorf("wait for the speakers' key: %w", err)
	}
	folder := r.keyFolder()
	err = os.MkdirAll(folder, 0o700)
	for key, value := range secret.Data {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, key), value, 0o600))
	}
	return err
}

func (r *Running) keyFolder() string { return filepath.Join(r.dir, "metallb-memberlist") }

// StartSpeaker starts the speaker of a machine, which finds the others at the machines' first
// addresses.
func (r *Running) StartSpeaker(ctx context.Context, m *netlab.Machine) error {
	ip := m.InternalIPs()[0]
	if err := r.pod(ctx, "speaker", m.Name, ip); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	speaker, err := m.Start(process.Command{
		Name: "metallb-speaker", Path: r.metallb.Program("speaker"),
		Args: []string{"--port=0", "--log-level=info", "--kubeconfig=" + r.kubeconfig},
		Env: []string{
			"METALLB_NAMESPACE=" + namespace, "METALLB_NODE_NAME=" + m.Name, "METALLB_POD_NAME=speaker-" + m.Name,
			"METALLB_HOST=" + ip.String(), "METALLB_ML_BIND_ADDR=" + ip.String(),
			"METALLB_ML_LABELS=app=metallb,component=speaker", "METALLB_ML_SECRET_KEY_PATH=" + r.keyFolder(),
		},
	})
	r.speakers[m.Name] = speaker
	return err
}

// Speaker returns the process that StartSpeaker started on a machine.
func (r *Running) Speaker(m *netlab.Machine) *process.Process { return r.speakers[m.Name] }

// AddPool gives Services addresses of these ranges, announced on the machines' segment only: the
// list of excluded interfaces would be a file of a DaemonSet's pod.
func (r *Running) AddPool(ctx context.Context, ranges ...string) error {
	file := filepath.Join(r.dir, "metallb-pool.yaml")
	content := fmt.Sprintf(`apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: segment, namespace: %[1]s}
spec: {addresses: [%[2]s]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: segment, namespace: %[1]s}
spec: {ipAddressPools: [segment], interfaces: [uplink]}
`, namespace, strings.Join(ranges, ", "))
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return err
	}
	// The custom resource definitions may have been applied a moment ago.
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, within, true,
		func(ctx context.Context) (bool, error) {
			last = r.lab.ControlPlane.Apply(ctx, file)
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("give MetalLB addresses: %w: %w", err, last)
	}
	return nil
}
