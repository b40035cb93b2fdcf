// Package ipam decides which Node holds which podCIDRs.
//
// A pool ([PoolConfig]) carves one prefix into equal node prefixes. A [Ledger] keeps, over all
// pools, which Node (by name and UID) holds which prefixes: what was stored before (Restore), what
// was observed on Nodes that already have podCIDRs (Observe), and what it assigned itself (Assign).
// A Node that is gone (Release) keeps what it had in quarantine, until the caller knows that
// nothing leads there any more (Free). A [Holding] and a [Cursor] have a text form each, in which
// they are stored.
//
// What must never happen:
//   - two Nodes get overlapping prefixes, whatever lengths the prefixes have and whoever set them;
//   - a prefix becomes free while any Node still holds it, also a second holder, a Node outside
//     every pool, or one in quarantine;
//   - a Node gets a prefix of one address family while the other family has none left;
//   - a prefix that overlaps an exclusion is handed out;
//   - anything is done once for each of the node prefixes of a range: an IPv6 pool has up to 2^48.
//
// The package is pure: no clock, no logging, no goroutines, no Kubernetes. Warnings are return
// values, outputs are sorted, and the same calls in the same order give the same results. A
// Ledger is not safe for concurrent use: it has one owner.
//
// The facts about podCIDRs (at most one per address family, immutable once set, duplicates
// accepted by the API server) come from the Node validation of Kubernetes. Node prefixes longer
// than /30 and /126 are refused because the CNI plugin host-local cannot allocate from them.
package ipam
