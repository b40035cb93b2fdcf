// Package agent keeps a node's filter in step with the cluster's NetworkPolicies: it watches
// them, and Pods and Namespaces only while there is one, and sets the table to the ruleset that
// package policy derives.
//
// The table must never be changed before policies, pods, namespaces and nodes are all known, and
// stays as it is while they are not: it drops packets of unknown pods. After a boot there is no
// table; then Enforced reports an error until there is, and no pod may start before.
package agent
