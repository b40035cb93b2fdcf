// Package policy decides which connections of pods the NetworkPolicies of a cluster allow, and
// derives from that the packet filter of one node, as a value.
//
// Index holds what is known of policies, pods, namespaces and nodes. Index.Ruleset returns the
// filter of a node: a chain for each distinct set of policies that pods of the node share, and a
// set of addresses for each distinct peer of a rule. Names are digests of definitions, so a pod
// that starts or ends anywhere changes elements of sets and never a rule. Index.Explain answers
// for one connection, and names the policies.
//
// The semantics are those of networking.k8s.io/v1 (its API reference, and "Network Policies" in
// Kubernetes' documentation): a pod is isolated in a direction if a policy of that direction
// selects it; then only what one of these policies allows may begin, and replies pass. Pods with
// hostNetwork are nodes: no policy selects them, and only ipBlocks match them. What the API leaves
// open is decided here: a protocol without ports matches only rules without ports; a named port
// is one of the destination pod; a pod that is isolated reaches itself; of two pods that report
// the same address, the younger one has it.
//
// The package must never believe an address that lies outside the podCIDRs of the pod's node:
// addresses are reported by kubelets, and one of them could otherwise claim the address of
// another node's pod, and what policies allow to it. It must never allow packets of an address in
// the node's podCIDRs that no known pod has.
//
// Tiers of ClusterNetworkPolicy would be chains of more kinds before those of today, with other
// verdicts for their rules, and the same sets.
package policy
