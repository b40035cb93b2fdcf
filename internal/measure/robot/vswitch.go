package robot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// namePrefix begins the names of all vSwitches that runs make; the run's name follows. Robot knows
// no labels.
const namePrefix = "underlay-measure-"

// The VLANs that a vSwitch may have.
const vlanFirst, vlanLast = 4000, 4091

// VSwitch is a layer 2 network between dedicated servers. A list knows no members and no networks.
type VSwitch struct {
	ID        int64  `json:"id"`
	Name      string `json:"name"`
	VLAN      int    `json:"vlan"`
	Cancelled bool   `json:"cancelled"`
	Members   []struct {
		Server int64  `json:"server_number"`
		Status string `json:"status"` // as the web service words it
	} `json:"server"`
	// Networks are the cloud's that are coupled with it.
	Networks []struct {
		ID int64 `json:"id"`
	} `json:"cloud_network"`
}

// Run is the name of the run that made it; empty: nobody's.
func (v VSwitch) Run() string {
	run, _ := strings.CutPrefix(v.Name, namePrefix)
	if run == v.Name {
		return ""
	}
	return run
}

// Status is what a server is in it; empty: no member.
func (v VSwitch) Status(server int64) string {
	for _, m := range v.Members {
		if m.Server == server {
			return m.Status
		}
	}
	return ""
}

// VSwitches are those of the account.
func (c *Client) VSwitches(ctx context.Context) ([]VSwitch, error) {
	var found []VSwitch
	if _, err := c.do(ctx, http.MethodGet, "/vswitch", nil, &found); err != nil {
		return nil, fmt.Errorf("listing vSwitches: %w", err)
	}
	return found, nil
}

// VSwitch is one with its members and networks.
func (c *Client) VSwitch(ctx context.Context, id int64) (VSwitch, error) {
	var found VSwitch
	_, err := c.do(ctx, http.MethodGet, path(id, ""), nil, &found)
	if err == nil && found.ID != id {
		err = fmt.Errorf("the answer is about vSwitch %d", found.ID)
	}
	if err != nil {
		return VSwitch{}, fmt.Errorf("looking up vSwitch %d: %w", id, err)
	}
	return found, nil
}

func path(id int64, below string) string {
	return "/vswitch/" + strconv.FormatInt(id, 10) + below
}

// CreateVSwitch makes one of the run, on the highest VLAN that no other of the account has.
func (c *Client) CreateVSwitch(ctx context.Context) (VSwitch, error) {
	others, err := c.VSwitches(ctx)
	if err != nil {
		return VSwitch{}, err
	}
	vlan := vlanLast
	for slices.ContainsFunc(others, func(v VSwitch) bool { return v.VLAN == vlan }) {
		vlan--
	}
	if vlan < vlanFirst {
		return VSwitch{}, errors.New("making a vSwitch: the account's vSwitches have every VLAN; remove one")
	}
	var made VSwitch
	name := namePrefix + c.run
	form := url.Values{"name": {name}, "vlan": {strconv.Itoa(vlan)}}
	_, err = c.do(ctx, http.MethodPost, "/vswitch", form, &made)
	if err == nil && (made.ID <= 0 || made.Name != name) {
		err = fmt.Errorf("the answer is about vSwitch %d, %q", made.ID, made.Name)
	}
	if err != nil {
		return VSwitch{}, fmt.Errorf("making a vSwitch: %w", err)
	}
	c.own(made.ID)
	return made, nil
}

// own notes that a vSwitch bears the name of a run.
func (c *Client) own(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.owned[id]; !known {
		c.owned[id] = 0
	}
}

// mine is an error unless a run made the vSwitch.
func (c *Client) mine(id int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.owned[id]; !known {
		return errors.New("no run has made it, so it is not changed")
	}
	return nil
}

// join notes the server that a run puts into a vSwitch of its own. There is one at most.
func (c *Client) join(id, server int64) error {
	if err := c.mine(id); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if is := c.owned[id]; is != 0 && is != server {
		return fmt.Errorf("the run's server in it is %d, and no other is put in or taken out", is)
	}
	c.owned[id] = server
	return nil
}

// AddServer puts a dedicated server into a vSwitch of a run, one at most. The server's other ports
// stay as they are.
func (c *Client) AddServer(ctx context.Context, id, server int64) error {
	if err := c.changeMember(ctx, http.MethodPost, id, server); err != nil {
		return fmt.Errorf("adding server %d to vSwitch %d: %w", server, id, err)
	}
	return nil
}

// RemoveServer takes the run's server out again.
func (c *Client) RemoveServer(ctx context.Context, id, server int64) error {
	if err := c.changeMember(ctx, http.MethodDelete, id, server); err != nil {
		return fmt.Errorf("removing server %d from vSwitch %d: %w", server, id, err)
	}
	return nil
}

func (c *Client) changeMember(ctx context.Context, method string, id, server int64) error {
	if err := c.join(id, server); err != nil {
		return err
	}
	form := url.Values{"server[]": {strconv.FormatInt(server, 10)}}
	return c.change(ctx, method, id, "/server", form)
}

// Cancel removes a vSwitch of a run, now.
func (c *Client) Cancel(ctx context.Context, id int64) error {
	if err := c.change(ctx, http.MethodDelete, id, "", url.Values{"cancellation_date": {"now"}}); err != nil {
		return fmt.Errorf("removing vSwitch %d: %w", id, err)
	}
	return nil
}

func (c *Client) change(ctx context.Context, method string, id int64, below string, form url.Values) error {
	if err := c.mine(id); err != nil {
		return err
	}
	_, err := c.do(ctx, method, path(id, below), form, nil)
	return err
}
