// Package vswitch reports which Nodes of dedicated servers have no working membership in the
// vSwitch over which their podCIDRs are reached. For each member, Robot has the state of its
// port: configured, being configured, or failed; other servers are no members. Nothing else
// shows that before packets are lost.
//
// A Node without a working membership has the condition MemberCondition, gets an Event for each
// change, and counts in a metric. The condition outlives the process, and underlayctl, which has
// no access to Robot, reads it.
//
// The Controller must never report on partial data. A failed read changes nothing, a Node that
// joined after the request is not judged by its response, and a member that is being configured
// has not failed. It must never block anything, and changes only the condition: podCIDRs and
// routes are the same for all members.
package vswitch
