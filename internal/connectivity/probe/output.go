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

// Run is a probe that asks from a node: it reads what can be asked, a connectivity.World as JSON,
// and writes what connectivity.ReadResults reads.
func Run(ctx context.Context, from, world string, settle time.Duration, out io.Writer) error {
	var w connectivity.World
	if err := json.Unmarshal([]byte(world), &w); err != nil {
		return fmt.Errorf("what can be asked can't be read: %w", err)
	}
	return connectivity.WriteResults(out, Ask(ctx, connectivity.Plan(from, w), settle))
}
