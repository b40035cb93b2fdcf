package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/lb"
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
			"set detectLocalMode: InterfaceNamePrefix and detectLocal.interfaceNamePrefix: veth: "+proxyEdit,
			proxyLocalMode),
		newCheck("kube-proxy-node-ports", Error, (*cluster).balances, hasProxy|survey.PartNodes,
			"set nodePortAddresses to the addresses that load balancers send to: "+proxyEdit,
			proxyNodePorts),
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
		f.What = fmt.Sprintf("detectLocalMode is %s, which finds no pod of Underlay's network",
			c.DetectLocalMode)
	}
	return []Finding{f}
}

// proxyNodePorts compares the addresses on which kube-proxy opens NodePorts with those that load
// balancers use: by their targets, or before the first load balancer by the configuration.
func proxyNodePorts(x *cluster) []Finding {
	var targets []lb.Target
	for _, b := range x.balancings {
		if b.LoadBalancer != nil {
			targets = append(targets, b.LoadBalancer.Targets...)
		}
	}
	var closed []string
	for _, n := range x.Nodes {
		var used []netip.Addr
		for _, t := range targets {
			if !t.Pod() && lbcontroller.Is(n, t) {
				used = append(used, addressOf(n, t))
			}
		}
		_, dedicated := kube.ParseDedicatedID(n.Spec.ProviderID)
		if len(targets) == 0 && dedicated != nil {
			used = append(used, addressOf(n, lb.Target{Private: x.Config.LoadBalancers.UsePrivateIP}))
		}
		for _, a := range used {
			text := fmt.Sprintf("%s of %s", a, n.Name)
			if a.IsValid() && !x.proxy.OpensNodePorts(n, a) && !slices.Contains(closed, text) {
				closed = append(closed, text)
			}
		}
	}
	if len(closed) == 0 {
		return nil
	}
	return []Finding{about(proxyObject,
		"kube-proxy in mode %s opens NodePorts on %s, and load balancers send traffic to %s",
		x.proxy.Mode, strings.Join(x.proxy.NodePortAddresses, ", "), few(closed))}
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
	if a, err := netip.ParseAddr(host); (err != nil || !a.IsLoopback()) &&
		port == fmt.Sprint(proxyHealth) {
		return nil
	}
	f := Finding{Object: proxyObject, What: fmt.Sprintf("healthzBindAddress is %s, and load balancers check nodes at port %d: every target is unhealthy", c.HealthzBindAddress, proxyHealth)}
	if !x.balances() {
		f.What = fmt.Sprintf("healthzBindAddress is %s, and nodes that hold addresses are checked at port %d: none seems to respond", c.HealthzBindAddress, proxyHealth)
		f.Remedy = "set healthzBindAddress: 0.0.0.0:10256: " + proxyEdit
	}
	return []Finding{f}
}
