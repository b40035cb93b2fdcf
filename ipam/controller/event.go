package controller

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"

	"github.com/underlay-ccm/underlay/ipam"
)

const (
	reasonPoolExhausted    = "PoolExhausted"
	reasonForeignPodCIDR   = "ForeignPodCIDR"
	reasonDuplicatePodCIDR = "DuplicatePodCIDR"
)

func reasonOf(w ipam.Warning) string {
	if w.Kind == ipam.Duplicate {
		return reasonDuplicatePodCIDR
	}
	return reasonForeignPodCIDR
}

// tell warns about a Node, once for each reason and what it is about.
func (d *decider) tell(n *node, reason, about, message string) {
	cause := reason + " " + about
	if n.told[cause] {
		return
	}
	n.told[cause] = true
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.UID)}
	d.recorder.Event(ref, corev1.EventTypeWarning, reason, message)
}

// podCIDRs reads a Node's podCIDRs, and names those that it can't read. It reads what old API
// servers accepted, numbers with leading zeros: such a prefix is in use, however it is written.
func podCIDRs(live *corev1.Node) (prefixes []netip.Prefix, unreadable []string) {
	for _, text := range podCIDRTexts(live) {
		_, block, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			unreadable = append(unreadable, text)
			continue
		}
		addr, _ := netip.AddrFromSlice(block.IP)
		ones, _ := block.Mask.Size()
		prefixes = append(prefixes, netip.PrefixFrom(addr, ones))
	}
	return prefixes, unreadable
}
