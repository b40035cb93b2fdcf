package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
)

// kube-proxy's configuration as kubeadm stores it.
const (
	proxyObject     = "ConfigMap/kube-system/kube-proxy"
	proxyEdit       = "kubectl -n kube-system edit configmap kube-proxy (key config.conf), then kubectl -n kube-system rollout restart daemonset/kube-proxy"
	vethPrefix      = "veth" // prefix of the host interfaces that the plugin ptp creates
	proxyHealth     = 10256
	byInterfaceName = "InterfaceNamePrefix"
)

func kubeProxyChecks() []check {
	return []check{
		newCheck("kube-proxy-local-mode", Error, nil, hasProxy,
			"set detectLocalMode: InterfaceNamePrefix and detectLocal.interfaceNamePrefix: veth: "+proxyEdit, proxyLocalMode),
		newCheck("kube-proxy-node-ports", Error, (*cluster).balances, hasProxy|survey.PartNodes,
			"set nodePortAddresses to the addresses that load balancers send to: "+proxyEdit, proxyNodePorts),
		newCheck("kube-proxy-health-port", Error, func(x *cluster) bool {
			return x.addresses() || x.balances() && x.Config.LoadBalancers.HealthCheck != "node-port"
		}, hasProxy,
			"set healthzBindAddress: 0.0.0.0:10256, or healthCheck: node-port below loadBalancers in underlay-config: "+proxyEdit, proxyHealthPort),
	}
}

func proxyLocalMode(x *cluster) []Finding {
	c := x.proxy
	f := Finding{Object: proxyObject}
	switch prefix := c.DetectLocal.InterfaceNamePrefix; {
	case c.DetectLocalMode == byInterfaceName && prefix != "" && strings.HasPrefix(vethPrefix, prefix):
		return nil
	case c.DetectLocalMode == byInterfaceName:
		f.What = fmt.Sprintf("detectLocal.interfaceNamePrefix is %q, and the interfaces of pods begin with %s: kube-proxy takes no pod for one of its node", prefix, vethPrefix)
	case c.DetectLocalMode == "NodeCIDR":
		f.What = "detectLocalMode is NodeCIDR: kube-proxy does not start on a node before that has a podCIDR, and knows no second one of a family"
	case c.DetectLocalMode == "ClusterCIDR":
		f.Severity = Warning
		f.What = fmt.Sprintf("detectLocalMode is ClusterCIDR with clusterCIDR %q: pods outside that range count as strangers, those of other nodes as the node's own", c.ClusterCIDR)
	default:
		f.What = fmt.Sprintf("detectLocalMode is %s, which finds no pod of Underlay's network", c.DetectLocalMode)
	}
	return []Finding{f}
}

// proxyNodePorts compares, for each node, the addresses on which kube-proxy opens NodePorts with
// those that load balancers use.
func proxyNodePorts(x *cluster) []Finding {
	c := x.proxy
	var closed []string
	for _, private := range x.waysToNodes() {
		for _, n := range x.Nodes {
			for _, a := range x.targeted(n, private) {
				if !c.OpensNodePorts(n, a) {
					closed = append(closed, fmt.Sprintf("%s of %s", a, n.Name))
				}
			}
		}
	}
	if len(closed) == 0 {
		return nil
	}
	f := Finding{
		Object: proxyObject,
		What: fmt.Sprintf("kube-proxy in mode %s opens NodePorts on %s, and load balancers send traffic to %s",
			c.Mode, strings.Join(c.NodePortAddresses, ", "), few(closed)),
	}
	if x.Network != nil && len(x.Network.Subnets) > 0 && slices.Equal(x.waysToNodes(), []bool{true}) {
		f.Remedy = fmt.Sprintf("set nodePortAddresses: [%s]: %s", survey.Join(x.Network.Subnets, ", "), proxyEdit)
	}
	return []Finding{f}
}

// waysToNodes contains true if load balancers use nodes' private addresses and false if they use
// public ones: by the existing load balancers, or without any by the configuration. Load
// balancers with pods as targets don't count.
func (x *cluster) waysToNodes() []bool {
	var ways []bool
	pods := false
	for _, b := range x.balancings {
		if b.LoadBalancer == nil {
			continue
		}
		for _, t := range b.LoadBalancer.Targets {
			pods = pods || t.Pod()
			if !t.Pod() && !slices.Contains(ways, t.Private) {
				ways = append(ways, t.Private)
			}
		}
	}
	if len(ways) == 0 && !pods {
		ways = append(ways, x.Config.LoadBalancers.UsePrivateIP)
	}
	return ways
}

// targeted returns the node's addresses that load balancers use: the first IPv4 address of a
// server of the cloud, and the target addresses of a dedicated server.
func (x *cluster) targeted(n *corev1.Node, private bool) []netip.Addr {
	if _, err := kube.ParseDedicatedID(n.Spec.ProviderID); err == nil {
		return x.addressTargets(n, private)
	}
	all := kube.ExternalIPs(n)
	if private {
		all = kube.InternalIPs(n)
	}
	var out []netip.Addr
	for _, a := range all {
		if a.Is4() {
			return append(out, a)
		}
	}
	return out
}

func (x *cluster) addressTargets(n *corev1.Node, private bool) (out []netip.Addr) {
	for _, b := range x.balancings {
		if b.LoadBalancer == nil {
			continue
		}
		for _, t := range b.LoadBalancer.Targets {
			if t.Private == private && t.Address.IsValid() && !t.Pod() && lbcontroller.Is(n, t) && !slices.Contains(out, t.Address) {
				out = append(out, t.Address)
			}
		}
	}
	return out
}

func proxyHealthPort(x *cluster) []Finding {
	c := x.proxy
	if c.HealthzBindAddress == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.HealthzBindAddress)
	if err != nil { // without a port, kube-proxy uses the default port
		host, port = c.HealthzBindAddress, fmt.Sprint(proxyHealth)
	}
	if a, err := netip.ParseAddr(host); (err != nil || !a.IsLoopback()) && port == fmt.Sprint(proxyHealth) {
		return nil
	}
	f := Finding{Object: proxyObject, What: fmt.Sprintf("healthzBindAddress is %s, and load balancers check nodes at port %d: every target is unhealthy", c.HealthzBindAddress, proxyHealth)}
	if !x.balances() {
		f.What = fmt.Sprintf("healthzBindAddress is %s, and nodes that hold addresses are checked at port %d: none seems to respond", c.HealthzBindAddress, proxyHealth)
		f.Remedy = "set healthzBindAddress: 0.0.0.0:10256: " + proxyEdit
	}
	return []Finding{f}
}
