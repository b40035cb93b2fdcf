package robot

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// VSwitch is a layer 2 network between dedicated servers. A list knows no
// members and no networks.
type VSwitch struct {
	ID        int64
	Name      string
	VLAN      int
	Cancelled bool
	Members   []Member
	// CloudNetworks are the cloud's subnets that are coupled with it.
	CloudNetworks []CloudSubnet
}

// Member is a server in a vSwitch.
type Member struct {
	Server int64 // its number
	Status MemberStatus
}

// MemberStatus says whether a server's port is configured.
type MemberStatus int

const (
	// MemberInProcess is being configured; every status that isn't known counts
	// as this.
	MemberInProcess MemberStatus = iota
	MemberReady
	MemberFailed
)

// CloudSubnet is a subnet of a cloud network that is coupled with a vSwitch.
type CloudSubnet struct {
	Network int64 // the cloud network's ID
	Range   netip.Prefix
	Gateway netip.Addr
}

type vSwitchBody struct {
	ID        int64  `json:"id"`
	Name      string `json:"name"`
	VLAN      int    `json:"vlan"`
	Cancelled bool   `json:"cancelled"`
	Servers   []struct {
		Number int64  `json:"server_number"`
		Status string `json:"status"`
	} `json:"server"`
	CloudNetworks []struct {
		ID      int64      `json:"id"`
		IP      netip.Addr `json:"ip"`
		Mask    int        `json:"mask"`
		Gateway netip.Addr `json:"gateway"`
	} `json:"cloud_network"`
}

func (b vSwitchBody) vSwitch() (VSwitch, error) {
	v := VSwitch{ID: b.ID, Name: b.Name, VLAN: b.VLAN, Cancelled: b.Cancelled}
	if v.ID <= 0 {
		return VSwitch{}, fmt.Errorf("vSwitch %q: id %d: is no ID", b.Name, b.ID)
	}
	for _, s := range b.Servers {
		m := Member{Server: s.Number}
		switch s.Status {
		case "ready":
			m.Status = MemberReady
		case "failed":
			m.Status = MemberFailed
		}
		v.Members = append(v.Members, m)
	}
	for _, n := range b.CloudNetworks {
		subnet, err := n.IP.Prefix(n.Mask)
		if err != nil || !n.IP.IsValid() {
			return VSwitch{}, fmt.Errorf("vSwitch %d: cloud_network %d: %s/%d is no subnet", b.ID, n.ID, n.IP, n.Mask)
		}
		v.CloudNetworks = append(v.CloudNetworks, CloudSubnet{Network: n.ID, Range: subnet, Gateway: n.Gateway})
	}
	return v, nil
}

// VSwitches returns every vSwitch of the account, or an error: never a part.
func (c *Client) VSwitches(ctx context.Context) ([]VSwitch, error) {
	var bodies []vSwitchBody
	if err := c.do(ctx, listVSwitches, "/vswitch", nil, &bodies); err != nil {
		return nil, fmt.Errorf("listing vSwitches: %w", err)
	}
	var found []VSwitch
	for _, b := range bodies {
		v, err := b.vSwitch()
		if err != nil {
			return nil, fmt.Errorf("listing vSwitches: %w", err)
		}
		found = append(found, v)
	}
	return found, nil
}

// VSwitch returns one vSwitch with its members and networks. NotFound tells that
// there is none.
func (c *Client) VSwitch(ctx context.Context, id int64) (VSwitch, error) {
	var body vSwitchBody
	err := c.do(ctx, getVSwitch, "/vswitch/"+strconv.FormatInt(id, 10), nil, &body)
	var v VSwitch
	if err == nil {
		v, err = body.vSwitch()
	}
	switch {
	case err != nil:
	case v.ID != id:
		err = fmt.Errorf("the answer is about vSwitch %d", v.ID)
	case body.Servers == nil: // which is not the same as none
		err = errors.New("the answer has no server, the list of its members")
	}
	if err != nil {
		return VSwitch{}, fmt.Errorf("looking up vSwitch %d: %w", id, err)
	}
	return v, nil
}
