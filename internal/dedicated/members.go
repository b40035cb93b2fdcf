package dedicated

import (
	"context"
	"time"

	"github.com/underlay-ccm/underlay/internal/vswitch"
)

var _ vswitch.Members = (*Servers)(nil)

// Members implements vswitch.Members. It requests Robot each time, but not before there is a
// list: credentials that were never accepted are sent by one request at a time, and the list,
// for which Nodes wait, comes first.
func (s *Servers) Members(ctx context.Context, vSwitch int64) (map[int64]vswitch.Status, error) {
	if _, err := s.List(ctx, time.Time{}); err != nil {
		return nil, err
	}
	return s.robot.Members(ctx, vSwitch)
}
