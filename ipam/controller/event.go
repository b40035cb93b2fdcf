package controller

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/ipam"
)

const (
	reasonPoolExhausted    = "PoolExhausted"
	reasonForeignPodCIDR   = "ForeignPodCIDR"
	reasonDuplicatePodCIDR = "DuplicatePodCIDR"
	reasonMissingPodCIDR   = "MissingPodCIDR"
)

func reasonOf(w ipam.Warning) string {
	switch w.Kind {
	case ipam.Duplicate:
		return reasonDuplicatePodCIDR
	case ipam.MissingFamily:
		return reasonMissingPodCIDR
	default:
		return reasonForeignPodCIDR
	}
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
