package survey

import (
	"context"
	"errors"
	"fmt"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// noCloud is why nothing of a cloud is seen where there is none.
const noCloud = "the provider is metal: there is no cloud to ask"

// connect makes the cloud's client when the configuration has told where it is.
func (c *collector) connect() error {
	switch {
	case c.cloud != nil:
		return nil
	case c.s.Config.Provider == config.Metal:
		return errNotSeen(noCloud)
	case c.Cloud == nil:
		return errNotSeen(c.NoCloud)
	case !c.s.Saw(PartConfig):
		return errNotSeen("the cloud is not asked while the configuration, which says where it is, is not known")
	}
	client, err := c.Cloud(c.s.Config.Endpoint)
	c.cloud = client
	return err
}

// told explains what the cloud's refusals mean to a person.
func told(err error) error {
	switch {
	case err == nil:
		return nil
	case hetzner.Unauthorized(err):
		return fmt.Errorf("the cloud refuses the token: give a valid one of this cluster's project; read permission is enough (%w)", err)
	case errors.Is(err, hetzner.ErrNoNetwork):
		return fmt.Errorf("%w: check that the token is of this cluster's project, and the network in the configuration", err)
	default:
		return fmt.Errorf("the cloud doesn't tell: %w", err)
	}
}

func (c *collector) network(ctx context.Context) error {
	if err := c.connect(); err != nil {
		return err
	}
	if c.s.Config.Network == "" {
		return nil
	}
	found, err := c.cloud.LookAtNetwork(ctx, c.s.Config.Network)
	if err != nil {
		return told(err)
	}
	c.s.Network = &Network{
		ID: found.ID, Name: found.Name, IPRange: found.IPRange, Subnets: found.Subnets, Created: found.Created,
		Routes: found.Routes, Servers: found.Servers, LoadBalancers: found.LoadBalancers,
	}
	return nil
}

// servers come after the network: every gateway of its routes is in their list
// then.
func (c *collector) servers(ctx context.Context) error {
	if err := c.connect(); err != nil {
		return err
	}
	var network int64
	switch {
	case c.s.Network != nil:
		network = c.s.Network.ID
	case c.s.Config.Network != "" && c.want.Parts&PartNetwork != 0:
		return errNotSeen("servers can't be told apart from others' while the network is not seen")
	case c.s.Config.Network != "":
		found, err := c.cloud.LookAtNetwork(ctx, c.s.Config.Network)
		if err != nil {
			return told(err)
		}
		network = found.ID
	}
	found, err := c.cloud.LookAtServers(ctx, network)
	if err != nil {
		return told(err)
	}
	for _, s := range found {
		c.s.Servers = append(c.s.Servers, Server(s))
	}
	return nil
}

func (c *collector) loadBalancers(ctx context.Context) error {
	if err := c.connect(); err != nil {
		return err
	}
	found, err := c.cloud.LookAtLoadBalancers(ctx)
	if err != nil {
		return told(err)
	}
	for _, b := range found {
		c.s.LoadBalancers = append(c.s.LoadBalancers, LoadBalancer(b))
	}
	if len(found) == 0 {
		return nil // nothing uses a certificate
	}
	c.s.Certificates, err = c.cloud.LoadBalancers().Certificates(ctx)
	return told(err)
}

// actions are those of the one Node's server or the one Service's load balancer.
func (c *collector) actions(ctx context.Context) error {
	if err := c.connect(); err != nil {
		return err
	}
	var found hetzner.SeenActions
	var err error
	switch {
	case c.want.Node != "":
		id, ok := c.serverOf(c.want.Node)
		if !ok {
			return nil
		}
		found, err = c.cloud.LookAtServerActions(ctx, id)
	case c.want.Service != Name{}:
		b := c.s.balancerOf(c.want.Service)
		if b == nil {
			return nil
		}
		found, err = c.cloud.LookAtLoadBalancerActions(ctx, b.ID)
	}
	for _, a := range found.Newest {
		c.s.Actions = append(c.s.Actions, Action(a))
	}
	c.s.OlderActions = found.Older
	return told(err)
}

// serverOf is the ID of a Node's server, if it has one that still exists.
func (c *collector) serverOf(node string) (int64, bool) {
	found := c.s.Node(node)
	if found == nil {
		return 0, false
	}
	server := c.s.ServerOf(found)
	if server == nil {
		return 0, false
	}
	_, err := cloud.ParseProviderID(server.ProviderID())
	return server.ID, err == nil
}
