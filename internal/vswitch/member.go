package vswitch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Status is what a server is in a vSwitch.
type Status int

const (
	// Missing: it is no member.
	Missing Status = iota
	// InProcess: its port is being configured.
	InProcess
	// Ready: its port is configured.
	Ready
	// Failed: configuring its port has failed.
	Failed
)

// Members knows what servers are in vSwitches.
type Members interface {
	// Members returns the status of each member by the number of its server: all of
	// the vSwitch or an error, never a part.
	Members(ctx context.Context, vSwitch int64) (map[int64]Status, error)
}

// MemberCondition is the Node condition that is False while the Node's server has no
// working place in the vSwitch. A Node that never lacked it doesn't have the condition:
// that saves a write for each.
const MemberCondition corev1.NodeConditionType = "underlay.dev/VSwitchMember"

const (
	reasonReady     = "VSwitchMemberReady"
	reasonInProcess = "VSwitchMemberInProcess"
	reasonFailed    = "VSwitchMemberFailed"
	reasonMissing   = "VSwitchMemberMissing"
)

// condition says of a Node what its server is in the vSwitch. What is to be done
// follows the semicolon.
func (s Status) condition(server, vSwitch int64) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: MemberCondition}
	switch s {
	case Ready:
		c.Status, c.Reason = corev1.ConditionTrue, reasonReady
		c.Message = fmt.Sprintf("dedicated server %d is a member of vSwitch %d, and its port is configured", server, vSwitch)
	case InProcess:
		c.Status, c.Reason = corev1.ConditionUnknown, reasonInProcess
		c.Message = fmt.Sprintf("Robot is configuring the port of dedicated server %d in vSwitch %d", server, vSwitch)
	case Failed:
		c.Status, c.Reason = corev1.ConditionFalse, reasonFailed
		c.Message = fmt.Sprintf("Robot failed to configure the port of dedicated server %d in vSwitch %d, so the Node's pods may not be reached over it; "+
			"at Robot, remove the server from the vSwitch and add it again, and ask the provider's support if that fails too", server, vSwitch)
	default:
		c.Status, c.Reason = corev1.ConditionFalse, reasonMissing
		c.Message = fmt.Sprintf("dedicated server %d is no member of vSwitch %d, over which its pods are to be reached; "+
			"add it to the vSwitch at Robot, or let the network's subnet be coupled with the vSwitch that the server is in", server, vSwitch)
	}
	return c
}

// isNews reports whether a Node is to be told what its server is now: what is wrong, in
// every word, and that it no longer is. A Node that was never told of anything wrong is
// told nothing else.
func isNews(node *corev1.Node, now corev1.NodeCondition) bool {
	old := kube.Condition(node, MemberCondition)
	switch {
	case old == nil:
		return now.Status == corev1.ConditionFalse
	case now.Status == corev1.ConditionFalse:
		return old.Status != now.Status || old.Reason != now.Reason || old.Message != now.Message
	default:
		return old.Status != now.Status
	}
}
