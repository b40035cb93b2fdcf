package controlplane

import (
	"fmt"
	"net/netip"
	"strings"
)

// Names of the programs, as the binary of test/kube expects them.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	kubectl           = "kubectl"
)

// etcdSocket is relative to the control plane's folder, in which every program runs: the length of
// a Unix socket's path is limited, that of a temporary folder's is not.
const etcdSocket = "etcd.sock"

func (c *ControlPlane) etcdArgs() []string {
	return append([]string{
		"--name=default",
		"--data-dir=etcd",
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://etcd-peer.sock",
		"--initial-advertise-peer-urls=unix://etcd-peer.sock",
		"--initial-cluster=default=unix://etcd-peer.sock",
		"--unsafe-no-fsync", // the data is deleted with the control plane
		"--log-level=warn",
	}, c.options.ExtraEtcdArgs...)
}

func (c *ControlPlane) apiServerArgs() []string {
	address := c.port.address()
	return append([]string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + address.Addr().String(),
		fmt.Sprintf("--secure-port=%d", address.Port()),
		"--permit-port-sharing", // see port
		// A machine without a default route has no address to advertise, and the reconciler rejects
		// one on loopback.
		"--advertise-address=" + address.Addr().String(),
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=apiserver.crt",
		"--tls-private-key-file=apiserver.key",
		"--client-ca-file=ca.crt",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=service-account.key",
		"--service-account-signing-key-file=service-account.key",
		"--service-cluster-ip-range=" + join(c.options.ServiceCIDRs),
		// Extension API servers, and so all programs with delegated authentication, look these up.
		"--requestheader-client-ca-file=front-proxy-ca.crt",
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=front-proxy-client.crt",
		"--proxy-client-key-file=front-proxy-client.key",
		"--audit-policy-file=audit-policy.yaml",
		"--audit-log-path=" + auditLog,
		"--audit-log-maxsize=0", // one file, never rotated
		"--profiling=false",
	}, c.options.ExtraAPIServerArgs...)
}

// controllers are those that run: the ones for ServiceAccounts, for garbage collection, for the
// endpoints of Services and for unresponsive nodes. Left out are node-ipam-controller and
// node-route-controller, which Underlay replaces, and those that would start workloads.
func controllers() []string {
	return []string{
		"clusterrole-aggregation-controller",
		"endpoints-controller",
		"endpointslice-controller",
		"garbage-collector-controller",
		"namespace-controller",
		"node-lifecycle-controller",
		"pod-garbage-collector-controller",
		"root-ca-certificate-publisher-controller",
		"service-cidr-controller",
		"serviceaccount-controller",
		"serviceaccount-token-controller",
		"taint-eviction-controller",
		"validatingadmissionpolicy-status-controller",
	}
}

// ControllerManagerArgs are the arguments of kube-controller-manager.
func (c *ControlPlane) ControllerManagerArgs() []string {
	kubeconfig := "controller-manager.kubeconfig"
	return append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers(), ","),
		"--use-service-account-credentials",
		"--service-account-private-key-file=service-account.key",
		"--root-ca-file=ca.crt",
		"--cloud-provider=external",
		"--allocate-node-cidrs=false",
		"--configure-cloud-routes=false",
		"--node-monitor-period=" + c.options.NodeMonitorPeriod.String(),
		"--node-monitor-grace-period=" + c.options.NodeMonitorGracePeriod.String(),
		"--node-startup-grace-period=" + c.options.NodeMonitorGracePeriod.String(),
		"--secure-port=0", // one port less to find; its logs show its state
		"--leader-elect=false",
		// Many nodes join at once in tests: its own limit must not determine the measurement.
		"--kube-api-qps=500",
		"--kube-api-burst=500",
		"--profiling=false",
	}, c.options.ExtraControllerManagerArgs...)
}

func join(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}
