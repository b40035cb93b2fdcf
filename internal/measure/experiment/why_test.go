package experiment

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/measure"
)

// What ended a run is told apart by the context's cause: the time limit may be over by another
// clock than the context's own.
func TestWhyAFactWasNotTried(t *testing.T) {
	for want, cause := range map[string]error{
		"the time limit was reached": fmt.Errorf("by the clock on the wall: %w", context.DeadlineExceeded),
		"the run was interrupted":    context.Canceled,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		seen := Run(ctx, &Bench{}, []measure.FactID{measure.Busy})
		if len(seen) != 1 || !strings.HasPrefix(seen[0].Why, want) {
			t.Errorf("%v: %+v, want %q", cause, seen, want)
		}
	}
}
