package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// PeerAccount is the ServiceAccount in kube-system with which kube-controller-manager's node IPAM
// runs in a kubeadm cluster; its permissions are among the API server's default roles.
const PeerAccount = "node-controller"

// StartPeer starts kube-controller-manager with its node IPAM controller only, for comparisons with
// Underlay's. It starts work at once, without leader election. Args are appended to the usual
// arguments, and override them; --master sets another address of the API server.
func (c *Cluster) StartPeer(ctx context.Context, args ...string) (*process.Process, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: PeerAccount}}
	_, err := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, account,
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("account of the peer: %w", err)
	}
	kubeconfig, err := c.ControlPlane.Kubeconfig(ctx, metav1.NamespaceSystem, PeerAccount)
	if err != nil {
		return nil, fmt.Errorf("credentials of the peer: %w", err)
	}
	binary, err := kubebinary.Path(ctx, io.Discard)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := process.Start(process.Command{
		Name: fmt.Sprintf("peer-%d", len(c.managers)+1), Path: binary, Dir: c.ControlPlane.Dir(),
		Args: slices.Concat([]string{
			"kube-controller-manager",
			"--kubeconfig=" + kubeconfig,
			"--controllers=node-ipam-controller",
			"--allocate-node-cidrs",
			"--configure-cloud-routes=false",
			"--cluster-cidr=" + PodRanges,
			"--leader-elect=false",
			"--secure-port=0",
		}, args),
	})
	if err != nil {
		return nil, err
	}
	c.managers = append(c.managers, p)
	return p, nil
}
