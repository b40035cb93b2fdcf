// Package policy measures how long a pod's start takes to reach the filters of other nodes, in a
// cluster with many pods and NetworkPolicies, what memory an agent needs for them, and what they
// cost new connections, beside kube-router's firewall.
package policy
