package robot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Member is a server in a vSwitch.
type Member struct {
	Server int64 // its number
	Status MemberStatus
}

// MemberStatus is the state of a server's port.
type MemberStatus int

const (
	// MemberInProcess is being configured, or has an unrecognized status.
	MemberInProcess MemberStatus = iota
	MemberReady
	MemberFailed
)

// Members returns all members of a vSwitch, never a part.
func (c *Client) Members(ctx context.Context, vSwitch int64) ([]Member, error) {
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
	members := make([]Member, 0, len(body.Servers))
	for _, s := range body.Servers {
		m := Member{Server: s.Number}
		switch s.Status {
		case "ready":
			m.Status = MemberReady
		case "failed":
			m.Status = MemberFailed
		}
		members = append(members, m)
	}
	return members, nil
}
