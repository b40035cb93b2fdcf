package vswitch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Status is the membership of a server in a vSwitch: no member, or a member with a port that is
// being configured, is configured, or failed to be.
type Status int

const (
	Missing Status = iota
	InProcess
	Ready
	Failed
)

// Members reads the members of vSwitches.
type Members interface {
	// Members returns the status of all members by server number, never a part.
	Members(ctx context.Context, vSwitch int64) (map[int64]Status, error)
}

// MemberCondition is the Node condition that is False while the Node's server has no working
// membership in the vSwitch. A Node that always had one doesn't get the condition, which saves a
// write.
const MemberCondition corev1.NodeConditionType = "underlay.dev/VSwitchMember"

const (
	reasonReady     = "VSwitchMemberReady"
	reasonInProcess = "VSwitchMemberInProcess"
	reasonFailed    = "VSwitchMemberFailed"
	reasonMissing   = "VSwitchMemberMissing"
)

// condition returns a Node's condition. In the message, the remedy follows the semicolon.
func (s Status) condition(server, vSwitch int64) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: MemberCondition}
	switch s {
	case Ready:
		c.Status, c.Reason = corev1.ConditionTrue, reasonReady
		c.Message = fmt.Sprintf("dedicated server %d is a member of vSwitch %d, and its port is configured", server, vSwitch)
	case InProcess:
		c.Status, c.Reason = corev1.ConditionUnknown, reasonInProcess
		c.Message = fmt.Sprintf("Robot is configuring the port of dedicated server %d in vSwitch %d",
			server, vSwitch)
	case Failed:
		c.Status, c.Reason = corev1.ConditionFalse, reasonFailed
		c.Message = fmt.Sprintf("Robot failed to configure the port of dedicated server %d in vSwitch %d, so the Node's pods may not be reached over it; "+
			"at Robot, remove the server from the vSwitch and add it again, and contact the provider's support if that fails too", server, vSwitch)
	default:
		c.Status, c.Reason = corev1.ConditionFalse, reasonMissing
		c.Message = fmt.Sprintf("dedicated server %d is no member of vSwitch %d, over which its pods are to be reached; "+
			"add it to the vSwitch at Robot, or let the network's subnet be coupled with the vSwitch that the server is in", server, vSwitch)
	}
	return c
}

// isNews reports whether to write a Node's condition: for every change of a failure, and for its
// end. A Node without a failure gets no condition.
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
