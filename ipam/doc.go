// Package ipam decides which Node holds which podCIDRs.
//
// A pool ([PoolConfig]) carves one prefix into node prefixes of equal size. A [Ledger]
// records, over all pools, which Node (by name and UID) holds which prefixes: those that were
// stored (Restore), those observed on Nodes that already have podCIDRs (Observe), and those it
// assigned itself (Assign). The prefixes of a deleted Node (Release) stay in quarantine until
// the caller has verified that no route to them is left (Free). [Holding] has a text form in which
// it is stored, and [Files] plans the writes of it.
//
// What must never happen:
//   - two Nodes get overlapping prefixes, whatever their lengths and whatever component set them;
//   - a prefix becomes free while any Node still holds it, including a second holder, a Node
//     outside every pool, or a Node in quarantine;
//   - a Node gets a prefix of one address family while the other family has none left;
//   - a prefix that overlaps an exclusion is handed out;
//   - an operation takes time or memory in proportion to the node prefixes of a range: an IPv6
//     pool has up to 2^48.
//
// The package is pure: no clock, no logging, no goroutines, no Kubernetes. Warnings are return
// values, outputs are sorted, and the same calls in the same order give the same results. A
// Ledger is not safe for concurrent use.
//
// The facts about podCIDRs (at most one per address family, immutable once set, duplicates
// accepted by the API server) come from the Node validation of Kubernetes. Node prefixes longer
// than /30 and /126 are rejected because the CNI plugin host-local cannot allocate from them.
package ipam
