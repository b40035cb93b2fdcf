// Package policy measures how long a pod's start takes to reach the filters of other nodes, in a
// cluster with many pods and NetworkPolicies.
package policy
