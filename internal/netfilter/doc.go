// Package netfilter manages one nftables table on a node. The table masquerades packets from
// pods to destinations that don't route the pods' addresses, and drops connections from external
// hosts to pods, except from allowed sources such as load balancers that have pods as targets.
//
// It must never rewrite the address of a packet between pods, or between pods and nodes; must
// never touch another table; and must never drop its rules during a change: a change is one
// transaction that keeps the chains hooked, because packets pass unfiltered between unhooking
// and hooking a chain. A drop here is final, so accepted packets (replies, the cluster itself,
// packets redirected to a pod by kube-proxy or a hostPort) are matched before it.
//
// The current table is compared with the desired one: the table, its chains and its rules in the
// output of nft, which has rules in the form in which they are written here, and sets by their
// elements. An nft with a different output format causes no wrong table: correct rules are then
// replaced in place when the process starts and after a commit of another program. The table is
// not listed if the ruleset's generation shows no commit to nftables since the last listing, or
// if Watch observed no commit to this table.
//
// Allowed sources are elements of a set that exists even if empty, so opening or closing a pod
// only edits elements. Connections to a pod stay established after it is closed: a draining
// target needs them.
//
// Rules match the first packet of a connection. After a rebuild, the conntrack entries of
// connections that began without the rules, and that the rules would have treated differently,
// are deleted. All other entries are kept.
//
// Sets of prefixes concatenated with addresses and ports need Linux 5.6.
//
// PolicyTable manages a second table, which enforces NetworkPolicies as a value of package policy.
// A map for each direction, from the address of each pod of the node to its chain, decides in the
// forward hook, where every packet between a pod and anything else but its node passes once, with
// its destination already chosen by kube-proxy and its source not yet masqueraded. A packet between
// two pods of the node passes the chains of both there; one that kube-proxy sends back to its own
// pod is accepted. An address in the node's podCIDRs without an entry is dropped, so a pod that
// starts while the agent is away has no network until the agent is back, rather than one without
// policies. Connections that a change forbids are cut by deleting their conntrack entries. Each
// chain counts what it drops, and logs some of it if the ruleset has a group for that.
//
// Sources: the nft(8) manual, the kernel's include/uapi/linux/netfilter/nf_tables.h for
// generation and notifications, and net/netfilter/nf_nat_core.c for when NAT is decided.
package netfilter
