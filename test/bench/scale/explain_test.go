package scale_test

import (
	"testing"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

// The figures of a cluster of this size.
const (
	backlogRate  = "Nodes that wait get podCIDRs, no client limit"
	untilServing = "start to the first Node's podCIDRs"
	cpuAtRest    = "CPU at rest"
	atRest       = "memory at rest"
	atMost       = "memory at most since the start"
	joinMedian   = "creation to podCIDRs, median"
	joinLongest  = "creation to podCIDRs, longest"
	replacedHere = "Nodes replaced under faults"
	faultMedian  = "creation to podCIDRs under faults, median"
	faultLongest = "creation to podCIDRs under faults and changes of leader, longest"
	faultCost    = "requests for a replaced Node"
)

// takenOver names the figures of a change of leader: all of it, and the part after the election.
func takenOver(what string) (all, elected string) {
	return what + " to the next one's first podCIDRs, median", what + ", of it since the lease was acquired, median"
}

func explain(b *testing.B) {
	b.Helper()
	stopped, elected := takenOver(toldToStop)
	killed, _ := takenOver(isKilled)
	results.Explain(
		b,
		results.Note{Text: "underlay-ccm beside a real API server and etcd, with 15,000 Nodes as large as kubelets make them, which report every five minutes. Provider `metal`, so that no cloud's limits are measured. Another Kubernetes allocator isn't run: kube-controller-manager hands out podCIDRs with the same API calls, see the section above."},
		results.Note{Quantity: untilServing, Text: "from the start of the process to the podCIDRs of a Node that was created at that moment."},
		results.Note{Quantity: atRest, Text: "resident memory half a minute after the first Node was served."},
		results.Note{Quantity: stopped, Text: "from SIGTERM for the leader, as in a rollout, to the podCIDRs of a Node that was created at that moment. The leader gives its lease back; another looks for it every second, at random up to 2.2 s (`--leader-elect-retry-period`), and has the Nodes in its cache by then."},
		results.Note{Quantity: elected, Text: "from the lease's acquisition on: going through all Nodes, and reading the stored ledger."},
		results.Note{Quantity: killed, Text: "as above with SIGKILL: the lease has to expire first, which takes 8 s (`--leader-elect-lease-duration`)."},
		results.Note{Quantity: faultLongest, Text: "of the last Nodes: leaders are killed every two minutes, and each takes with it what it had not written yet of Nodes that are gone, which where each write carries many Nodes may be the last five minutes. So quarantines begin anew, and the 1,340 ranges that are free at first run out."},
		results.Note{Quantity: replacedHere, Text: "one percent of the Nodes a minute. Requests and replies are lost, watches stall, four leaders are killed. That no range was handed out twice is asserted."},
	)
}
