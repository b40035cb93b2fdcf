// Package vswitch tells which dedicated servers' Nodes have no working place in the
// vSwitch that their podCIDRs are reached over: Robot knows of each member whether its
// port is configured, being configured, or has failed to be, and which servers are no
// members at all. Nothing else shows that before packets get lost.
//
// A Node without such a place has the condition MemberCondition, an Event each time
// that changes, and counts in a metric. The condition is the memory of what was told:
// it outlives the process, and underlayctl, which asks Robot nothing, reads it.
//
// The Controller must never tell on half knowledge. A look that fails changes nothing,
// a Node that joined after the look was asked for is not judged by it, and a member
// that is being configured has not failed. It must never keep anything waiting, and
// changes nothing but the condition: podCIDRs and routes are the same for all members.
package vswitch
