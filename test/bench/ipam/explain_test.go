package ipam_test

import (
	"context"
	"testing"

	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

// explain records the meaning of the figures, and the compared programs.
func explain(ctx context.Context, b *testing.B) {
	b.Helper()
	version, err := kubebinary.Version(ctx)
	if err != nil {
		b.Fatal(err)
	}
	results.Compare(b, results.Version{Program: "kube-controller-manager, kube-apiserver", Version: version})
	results.Explain(
		b,
		results.Note{Text: "Nodes get their podCIDRs, of two families, from one allocator at a time; all take turns on one real API server, and times come from its audit log. " +
			"The raw PATCH loop decides and records nothing: 30 workers that write the next ranges to each Node, the bound of what the API server gives on this machine."},
		results.Note{Quantity: "rate", Text: "Nodes by the time from the first Node's creation (of those that wait: from the first PATCH) to the last one's podCIDRs."},
		results.Note{Quantity: "duration", Text: "from the start of the process to the waiting Node's podCIDRs."},
		results.Note{Quantity: "creation to podCIDRs, median", Text: "of all Nodes of a round, from a Node's creation to its podCIDRs."},
		results.Note{Quantity: "CPU time", Text: "that the allocator's process used, user and system."},
		results.Note{Quantity: "memory at most", Text: "the largest resident set of the allocator's process so far."},
		results.Note{Quantity: "ledger written for a Node", Text: "bytes of ConfigMaps that record who holds what, by the number of Nodes. The others record nothing."},
	)
}
