package robot

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/underlay-ccm/underlay/internal/vswitch"
)

// Members implements vswitch.Members. An unrecognized status counts as in process.
func (c *Client) Members(ctx context.Context, vSwitch int64) (map[int64]vswitch.Status, error) {
	var body struct {
		ID      int64 `json:"id"`
		Servers []struct {
			Number int64  `json:"server_number"`
			Status string `json:"status"`
		} `json:"server"`
	}
	err := c.do(ctx, getVSwitch, "/vswitch/"+strconv.FormatInt(vSwitch, 10), nil, &body)
	switch {
	case err != nil:
	case body.ID != vSwitch:
		err = fmt.Errorf("the response is about vSwitch %d", body.ID)
	case body.Servers == nil: // missing, as opposed to empty
		err = errors.New("the response has no server, the list of its members")
	}
	if err != nil {
		return nil, fmt.Errorf("looking up vSwitch %d: %w", vSwitch, err)
	}
	members := make(map[int64]vswitch.Status, len(body.Servers))
	for _, s := range body.Servers {
		switch s.Status {
		case "ready":
			members[s.Number] = vswitch.Ready
		case "failed":
			members[s.Number] = vswitch.Failed
		default:
			members[s.Number] = vswitch.InProcess
		}
	}
	return members, nil
}
