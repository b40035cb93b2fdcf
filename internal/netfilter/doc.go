// Package netfilter keeps one nftables table of its own on a node: it lets pods
// leave under the node's address where their own is not known outside, and keeps
// strangers from opening connections to pods, unless
// they are told to be let in, as load balancers are that have pods as targets.
//
// It must never rewrite the address of a packet between pods, or between pods
// and nodes; never touch another table; and never be without its rules while
// they change: a change is one transaction that leaves the chains hooked, because
// packets slip through between the end of one hook and the beginning of the
// next. A drop here is final, so what is let in (replies, the cluster itself,
// what was redirected to a pod by kube-proxy or a hostPort) is decided before it.
//
// What is there is compared with what should be: the table, its chains and its
// rules as nft shows them, which for rules is as they are written here, and sets by
// their elements. An nft that shows a rule in other words leads to no wrong table:
// rules that were right are replaced in place when a process begins, and when
// somebody else has committed to the table. Nothing is listed at all where nobody
// has committed anything to nftables since the last look, which the kernel tells by
// the ruleset's generation, or where Watch saw no commit to this table.
//
// Who is let in is a set too, there while it is empty, so that a pod is opened and
// closed by an edit of elements alone. What was connected while it was open goes on
// until it ends: a target that is drained needs that.
//
// Rules judge the first packet of a connection. When they stand anew, the kernel is
// made to forget the connections that began without them and that they would have
// treated otherwise, and no others.
//
// Sets of prefixes joined with addresses and ports need Linux 5.6.
//
// Where its facts come from: the nft(8) manual, the kernel's
// include/uapi/linux/netfilter/nf_tables.h for generation and notifications, and
// net/netfilter/nf_nat_core.c for when NAT is decided on.
package netfilter
