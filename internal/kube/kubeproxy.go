package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ProxyConfigMap, in kube-system, is where kubeadm keeps kube-proxy's configuration.
const ProxyConfigMap = "kube-proxy"

const proxyKey = "config.conf"

// What NodePortAddresses may have in place of ranges; the last two are our own words for what
// kube-proxy does where there are none.
const (
	primaryOnly  = "primary"
	loopbackOnly = "localhost"
	everyAddress = "all"
)

// ProxyNFTables is kube-proxy's mode with rules of nftables.
const ProxyNFTables = "nftables"

// ProxyConfig is what Underlay reads of kube-proxy's configuration
// (kubeproxy.config.k8s.io/v1alpha1).
type ProxyConfig struct {
	Mode               string   `json:"mode"`
	ClusterCIDR        string   `json:"clusterCIDR"`
	DetectLocalMode    string   `json:"detectLocalMode"`
	NodePortAddresses  []string `json:"nodePortAddresses"`
	BindAddress        string   `json:"bindAddress"`
	HealthzBindAddress string   `json:"healthzBindAddress"`
	DetectLocal        struct {
		InterfaceNamePrefix string `json:"interfaceNamePrefix"`
	} `json:"detectLocal"`
}

// ReadProxy reads kube-proxy's configuration, with kube-proxy's own defaults. There may be no
// object, which is an error.
func ReadProxy(object *corev1.ConfigMap) (ProxyConfig, error) {
	if object == nil {
		return ProxyConfig{}, errors.New("there is no ConfigMap kube-system/kube-proxy, so kube-proxy was not set up by kubeadm, or there is none")
	}
	text, ok := object.Data[proxyKey]
	if !ok {
		return ProxyConfig{}, fmt.Errorf("the ConfigMap kube-system/kube-proxy has no key %s", proxyKey)
	}
	var c ProxyConfig
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return ProxyConfig{}, fmt.Errorf("the key %s of the ConfigMap kube-system/kube-proxy can't be read: %w", proxyKey, err)
	}
	if c.Mode == "" {
		c.Mode = "iptables"
	}
	if c.DetectLocalMode == "" {
		c.DetectLocalMode = "ClusterCIDR"
	}
	if len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{everyAddress}
		if c.Mode == ProxyNFTables {
			c.NodePortAddresses = []string{primaryOnly}
		}
	}
	return c, nil
}

// OpensNodePorts reports whether kube-proxy accepts NodePorts on one of its node's addresses.
func (c ProxyConfig) OpensNodePorts(n *corev1.Node, a netip.Addr) bool {
	return slices.ContainsFunc(c.NodePortAddresses, func(text string) bool {
		switch text {
		case everyAddress:
			return true
		case loopbackOnly:
			return a.IsLoopback()
		case primaryOnly:
			return primary(n, a.Is4()) == a
		}
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	})
}

// primary is the node's address of a family as kube-proxy has it: the first internal one, or
// where there is none the first external one.
func primary(n *corev1.Node, ipv4 bool) netip.Addr {
	for _, a := range slices.Concat(InternalIPs(n), ExternalIPs(n)) {
		if a.Is4() == ipv4 {
			return a
		}
	}
	return netip.Addr{}
}
