// Package kube converts Kubernetes objects to the values of the pure packages: podCIDRs and
// addresses as netip values, conditions, roles. It makes no decisions and never contacts a cloud.
package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	netutils "k8s.io/utils/net"
)

// PodCIDRs returns the node's pod prefixes in their order, masked, and IPv4 as IPv4. It also
// accepts numbers with leading zeros, as old API servers did, because such a prefix is in use. The
// readable prefixes are returned even if the error names the node and its unreadable values.
func PodCIDRs(node *corev1.Node) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	var unreadable []string
	for _, text := range podCIDRTexts(node) {
		if p, ok := readPrefix(text); ok {
			prefixes = append(prefixes, p)
		} else {
			unreadable = append(unreadable, strconv.Quote(text))
		}
	}
	if len(unreadable) > 0 {
		return prefixes, fmt.Errorf("node %s has a podCIDR that is no prefix (%s): delete this Node and let it join again",
			node.Name, strings.Join(unreadable, ", "))
	}
	return prefixes, nil
}

// HasPodCIDRs reports whether the node has podCIDRs, readable or not.
func HasPodCIDRs(node *corev1.Node) bool { return len(podCIDRTexts(node)) > 0 }

// podCIDRTexts returns the node's podCIDRs as written. Only objects that never passed an API
// server have podCIDR alone.
func podCIDRTexts(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

func readPrefix(text string) (netip.Prefix, bool) {
	_, block, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	addr, _ := netip.AddrFromSlice(block.IP)
	bits, _ := block.Mask.Size()
	// An IPv4-mapped address after masking implies at least 96 bits.
	if addr.Is4In6() {
		return netip.PrefixFrom(addr.Unmap(), bits-96), true
	}
	return netip.PrefixFrom(addr, bits), true
}

// Condition returns the node's condition of the type, or nil.
func Condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// Ready reports whether the kubelet reports the node as ready.
func Ready(node *corev1.Node) bool {
	c := Condition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// ControlPlane reports whether the node has the control plane's role label.
func ControlPlane(node *corev1.Node) bool {
	_, ok := node.Labels[ControlPlaneLabel]
	return ok
}

// ProvidedIPs returns the kubelet's --node-ip, at most one per family, not yet confirmed.
func ProvidedIPs(node *corev1.Node) []netip.Addr {
	return addrs(strings.Split(node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr], ","))
}

// MostReported limits how many of the addresses that a Node reports without confirmation may
// have an effect beyond the Node itself: its kubelet may report any number.
const MostReported = 5

// Addresses returns all addresses that the node reports, ProvidedIPs first.
func Addresses(node *corev1.Node) []netip.Addr {
	return append(ProvidedIPs(node), addressesOf(node, "")...)
}

// TooMany describes the reported addresses if they exceed [MostReported], or returns "".
func TooMany(node *corev1.Node) string {
	provided := node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr]
	if len(node.Status.Addresses)+strings.Count(provided, ",") < MostReported {
		return "" // as of nearly every Node, without parsing them
	}
	named := Addresses(node)
	slices.SortFunc(named, netip.Addr.Compare)
	if named = slices.Compact(named); len(named) <= MostReported {
		return ""
	}
	return fmt.Sprintf("it names %d addresses, %s to %s, of which %d count",
		len(named), named[0], named[len(named)-1], MostReported)
}

// addrs parses addresses and skips other texts, such as host names.
func addrs(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && !a.IsUnspecified() {
			out = append(out, a.Unmap().WithZone(""))
		}
	}
	return out
}

// InternalIPs returns the node's InternalIP addresses in order, without unparsable texts.
func InternalIPs(node *corev1.Node) []netip.Addr { return addressesOf(node, corev1.NodeInternalIP) }

// ExternalIPs returns the node's ExternalIP addresses, as InternalIPs does.
func ExternalIPs(node *corev1.Node) []netip.Addr { return addressesOf(node, corev1.NodeExternalIP) }

// addressesOf returns the addresses of a kind; an empty kind stands for all.
func addressesOf(node *corev1.Node, kind corev1.NodeAddressType) []netip.Addr {
	var texts []string
	for _, a := range node.Status.Addresses {
		if kind == "" || a.Type == kind {
			texts = append(texts, a.Address)
		}
	}
	return addrs(texts)
}

// Tainted reports whether the node has a taint with the key.
func Tainted(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// Excluded reports whether the label that excludes nodes from load balancers is set and not false.
func Excluded(node *corev1.Node) bool {
	value, set := node.Labels[corev1.LabelNodeExcludeBalancers]
	if !set {
		return false
	}
	exclude, err := strconv.ParseBool(value)
	return err != nil || exclude
}
