package contour

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

const (
	// namespace is the Namespace in which the manifest installs the gateway provisioner.
	namespace   = "projectcontour"
	provisioner = "contour-gateway-provisioner"
)

// StartProvisioner starts the gateway provisioner as its Deployment would. The manifest must have
// been applied. Its log is in the control plane's folder.
func (c Contour) StartProvisioner(
	ctx context.Context, plane *controlplane.ControlPlane,
) (*process.Process, error) {
	kubeconfig, err := plane.Kubeconfig(ctx, namespace, provisioner)
	if err != nil {
		return nil, err
	}
	return process.Start(process.Command{
		Name: provisioner, Path: c.Program(), Dir: plane.Dir(),
		Args: []string{"gateway-provisioner", "--no-incluster", "--kubeconfig=" + kubeconfig, "--metrics-addr=0"},
	})
}

// Instance is the program of the pods of a Gateway's Deployment: it writes the Gateway's status,
// and configures Envoy.
type Instance struct {
	*process.Process

	contour Contour
	gateway string // its name
	dir     string // folder of certificates and logs
	xds     string // address at which it serves Envoy's configuration
}

// StartInstance acts as the kubelet of the first pod of the Deployment that the provisioner has
// created for a Gateway: it starts the container's command with the pod's ServiceAccount, Secret
// and environment. It listens on loopback.
func (c Contour) StartInstance(
	ctx context.Context, plane *controlplane.ControlPlane, client kubernetes.Interface,
	gateway metav1.ObjectMeta,
) (*Instance, error) {
	deployment, err := client.AppsV1().Deployments(gateway.Namespace).Get(ctx, "contour-"+gateway.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Contour's Deployment: %w", err)
	}
	i := &Instance{contour: c, gateway: gateway.Name, dir: filepath.Join(plane.Dir(), deployment.Name)}
	for _, secret := range []string{"contourcert-", "envoycert-"} {
		if err := i.mount(ctx, client, gateway.Namespace, secret+gateway.Name); err != nil {
			return nil, err
		}
	}
	kubeconfig, err := plane.Kubeconfig(ctx, gateway.Namespace,
		deployment.Spec.Template.Spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	if err := i.listenOnLoopback(ctx, plane, gateway); err != nil {
		return nil, err
	}
	args, err := argumentsOf(deployment, kubeconfig)
	if err != nil {
		return nil, err
	}
	i.Process, err = process.Start(process.Command{
		Name: deployment.Name, Path: c.Program(), Args: args, Dir: plane.Dir(),
		Env: []string{"CONTOUR_NAMESPACE=" + gateway.Namespace, "POD_NAME=" + deployment.Name},
	})
	return i, err
}

// argumentsOf returns the arguments of a Deployment's pods, with a kubeconfig instead of the pod's
// credentials.
func argumentsOf(d *appsv1.Deployment, kubeconfig string) ([]string, error) {
	at := slices.Index(d.Spec.Template.Spec.Containers[0].Args, "--incluster")
	if at < 0 {
		return nil, fmt.Errorf("the Deployment %s/%s has no argument --incluster to replace: look how Contour finds the API server now", d.Namespace, d.Name)
	}
	args := slices.Clone(d.Spec.Template.Spec.Containers[0].Args)
	args[at] = "--kubeconfig=" + kubeconfig
	return args, nil
}

// mount writes a Secret to files, as in the volume of a pod.
func (i *Instance) mount(
	ctx context.Context, client kubernetes.Interface, namespace, name string,
) error {
	secret, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get a certificate of Contour's: %w", err)
	}
	folder := filepath.Join(i.dir, name)
	err = os.MkdirAll(folder, 0o700)
	for key, value := range secret.Data {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, key), value, 0o600))
	}
	return err
}

// listenOnLoopback changes the ContourConfiguration that the provisioner has created: it overrides
// the addresses and files of flags.
func (i *Instance) listenOnLoopback(
	ctx context.Context, plane *controlplane.ControlPlane, gateway metav1.ObjectMeta,
) error {
	var ports [4]int
	for n := range ports {
		var err error
		if ports[n], err = cluster.FreePort(ctx); err != nil {
			return err
		}
	}
	i.xds = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	folder := filepath.Join(i.dir, "contourcert-"+gateway.Name)
	patch := fmt.Sprintf(`{"spec": {
		"xdsServer": {"address": "127.0.0.1", "port": %d, "tls": {"caFile": "%[5]s/ca.crt", "certFile": "%[5]s/tls.crt", "keyFile": "%[5]s/tls.key", "insecure": false}},
		"health": {"address": "127.0.0.1", "port": %[2]d}, "metrics": {"address": "127.0.0.1", "port": %[3]d}, "debug": {"address": "127.0.0.1", "port": %[4]d}}}`,
		ports[0], ports[1], ports[2], ports[3], folder)
	_, err := plane.Kubectl(ctx, "-n", gateway.Namespace, "patch", "contourconfiguration", "contourconfig-"+gateway.Name, "--type=merge", "-p", patch)
	return err
}

// WatchListeners requests the listeners from the instance repeatedly, as Envoy does, until the
// process is ended. The responses are in its log, as JSON.
func (i *Instance) WatchListeners() (*process.Process, error) {
	folder := filepath.Join(i.dir, "envoycert-"+i.gateway)
	return process.Start(process.Command{
		Name: filepath.Base(i.dir) + "-listeners", Path: i.contour.Program(), Dir: i.dir,
		Args: []string{
			"cli", "lds", "--contour=" + i.xds, "--cafile=" + folder + "/ca.crt",
			"--cert-file=" + folder + "/tls.crt", "--key-file=" + folder + "/tls.key",
		},
	})
}
