package controller

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/ipam"
)

const (
	reasonPodCIDRAllocated  = "PodCIDRAllocated"
	reasonPoolExhausted     = "PoolExhausted"
	reasonNoPool            = "NoPool"
	reasonNoOwnPrefix       = "NoOwnPrefix"
	reasonOwnPrefixUnknown  = "OwnPrefixUnknown"
	reasonSharedOwnPrefix   = "SharedOwnPrefix"
	reasonLedgerFull        = "LedgerFull"
	reasonLedgerLost        = "LedgerLost"
	reasonLedgerNotWritable = "LedgerNotWritable"
	reasonLedgerDamaged     = "LedgerDamaged"
	reasonPrefixRouted      = "PrefixRouted"
	reasonSecondAllocator   = "SecondAllocator"
	reasonForeignPodCIDR    = "ForeignPodCIDR"
	reasonDuplicatePodCIDR  = "DuplicatePodCIDR"
	reasonMissingPodCIDR    = "MissingPodCIDR"
	reasonTooManyAddresses  = "TooManyAddresses"
)

// conditionMessages maps reasons to the messages of the condition. Figures are in the Events: a
// condition with a message that changes with every Node would be rewritten as often.
var conditionMessages = map[string]string{
	reasonPoolExhausted:    "No pool has a free prefix for this Node",
	reasonNoPool:           "No active pool is for this Node: its labels match the selector of none",
	reasonNoOwnPrefix:      "The machine has no IPv6 prefix of its own, and no pool is there to fall back to",
	reasonSharedOwnPrefix:  "Another Node has a part of the machine's IPv6 prefix, and no pool is there to fall back to",
	reasonOwnPrefixUnknown: "Which machine this Node is, and so its IPv6 prefix, is not known yet",
	reasonLedgerFull:       "The stored ledger can't hold more Nodes",
	reasonSecondAllocator:  "Another allocator gives podCIDRs to Nodes of this cluster",
}

func reasonOf(w ipam.Warning) string {
	switch w.Kind {
	case ipam.Duplicate, ipam.DuplicateRecord:
		return reasonDuplicatePodCIDR
	case ipam.MissingFamily:
		return reasonMissingPodCIDR
	default:
		return reasonForeignPodCIDR
	}
}

func reasonOfRefusal(err error) string {
	switch {
	case errors.Is(err, errSecondAllocator):
		return reasonSecondAllocator
	case errors.Is(err, errLedgerFull):
		return reasonLedgerFull
	case errors.Is(err, ipam.ErrNoRoom):
		return reasonPoolExhausted
	case errors.Is(err, ipam.ErrSharedOwn):
		return reasonSharedOwnPrefix
	case errors.Is(err, ipam.ErrNoOwn):
		return reasonNoOwnPrefix
	default:
		return reasonNoPool
	}
}

// warnOnce sends a Warning about a Node, once for each reason and subject. It reports whether it
// did.
func (d *decider) warnOnce(n *node, reason, about, message string) bool {
	cause := reason + " " + about
	if n.warned[cause] {
		return false
	}
	if n.warned == nil {
		n.warned = map[string]bool{} // lazily: most Nodes never have any
	}
	n.warned[cause] = true
	d.event(n, reason, message)
	return true
}

func (d *decider) event(n *node, reason, message string) {
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.UID)}
	d.Recorder.Event(ref, corev1.EventTypeWarning, reason, message)
}

func (d *decider) warnLedger(reason, message string) {
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: d.Namespace, Name: LedgerName,
	}
	d.Recorder.Event(ref, corev1.EventTypeWarning, reason, message)
}
