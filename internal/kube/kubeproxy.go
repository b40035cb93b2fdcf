package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ProxyConfigMap, in kube-system, holds kube-proxy's configuration in clusters of kubeadm.
const ProxyConfigMap = "kube-proxy"

const proxyKey = "config.conf"

// Values of NodePortAddresses, beside ranges and localhost. The last is Underlay's own, for none.
const (
	primaryOnly  = "primary"
	everyAddress = "all"
)

const ProxyNFTables = "nftables"

// ProxyConfig holds used fields of kube-proxy's configuration (kubeproxy.config.k8s.io/v1alpha1).
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

// ReadProxy parses kube-proxy's configuration with kube-proxy's defaults. Nil is an error.
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
		return ProxyConfig{},
			fmt.Errorf("the key %s of the ConfigMap kube-system/kube-proxy can't be read: %w", proxyKey, err)
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

// OpensNodePorts reports whether kube-proxy accepts NodePorts on an address of its node.
func (c ProxyConfig) OpensNodePorts(n *corev1.Node, a netip.Addr) bool {
	return slices.ContainsFunc(c.NodePortAddresses, func(text string) bool {
		switch text {
		case everyAddress:
			return true
		case "localhost":
			return a.IsLoopback()
		case primaryOnly:
			return primary(n, a.Is4()) == a
		}
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	})
}

// primary returns the node's primary address of a family in kube-proxy's terms: the first
// internal address, or else the first external one.
func primary(n *corev1.Node, ipv4 bool) netip.Addr {
	for _, a := range slices.Concat(InternalIPs(n), ExternalIPs(n)) {
		if a.Is4() == ipv4 {
			return a
		}
	}
	return netip.Addr{}
}
