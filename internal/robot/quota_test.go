package robot

import (
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

// The quotas that are known in advance are the documented ones.
func TestQuotasAreTheDocumentedOnes(t *testing.T) {
	documented := map[string]int{}
	for _, op := range robotsim.Operations() {
		documented[op.Name()] = op.Quota
	}
	for _, op := range operations() {
		if documented[op.name()] != op.quota {
			t.Errorf("%s: %d in an hour, documented are %d", op.name(), op.quota, documented[op.name()])
		}
	}
}
