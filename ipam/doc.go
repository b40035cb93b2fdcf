// Package ipam decides which Node holds which podCIDRs.
//
// A [Pool] carves one prefix into equal node prefixes. A [Ledger] keeps, over all pools, which
// Node (by name and UID) holds which prefixes: what was observed on Nodes that already have
// podCIDRs, and what it assigned itself. The caller tells it what it sees (Observe), asks for
// prefixes (Assign) and says when a Node is gone (Release); everything else follows.
//
// What must never happen:
//   - two Nodes get overlapping prefixes, whatever lengths the prefixes have and whoever set them;
//   - a prefix becomes free while any Node, also a second holder or a Node outside every pool, still holds it;
//   - a Node gets a prefix of one address family while the other family has none left;
//   - a prefix that overlaps an exclusion is handed out.
//
// The package is pure: no clock, no logging, no goroutines, no Kubernetes. Warnings are return
// values, outputs are sorted, and the same calls in the same order give the same results. A
// Ledger is not safe for concurrent use: it has one owner.
//
// The facts about podCIDRs (at most one per address family, immutable once set, duplicates
// accepted by the API server) come from the Node validation of Kubernetes. Node prefixes longer
// than /30 and /126 are refused because the CNI plugin host-local cannot allocate from them.
package ipam
