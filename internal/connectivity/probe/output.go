//go:build linux

package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

// Run is a probe that asks: it reads trials as text, and writes what
// connectivity.ReadResults reads.
func Run(ctx context.Context, trials string, settle time.Duration, out io.Writer) error {
	var all []connectivity.Trial
	if err := json.Unmarshal([]byte(trials), &all); err != nil {
		return fmt.Errorf("the trials can't be read: %w", err)
	}
	return connectivity.WriteResults(out, Ask(ctx, all, settle))
}
