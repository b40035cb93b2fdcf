package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// noCloud is the reason for the Gaps of the cloud's parts if the provider is metal.
const noCloud = "the provider is metal: there is no cloud to read"

// connect creates the cloud's client. It requires the configuration, which has the endpoint.
func (c *collector) connect() error {
	switch {
	case c.cloud != nil:
		return nil
	case c.s.Config.Provider == config.Metal:
		return errNotSeen(noCloud)
	case c.Cloud == nil:
		return errNotSeen(c.NoCloud)
	case !c.s.Saw(PartConfig):
		return errNotSeen("the cloud is not read while the configuration, which has its address, is not known")
	}
	client, err := c.Cloud(c.s.Config.Endpoint)
	c.cloud = client
	return err
}

// explained wraps an error of the cloud with its remedy.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case hetzner.Unauthorized(err):
		return fmt.Errorf("the cloud refuses the token: give a valid one of this cluster's project; read permission is enough (%w)", err)
	case errors.Is(err, hetzner.ErrNoNetwork):
		return fmt.Errorf("%w: check that the token is of this cluster's project, and the network in the configuration", err)
	default:
		return fmt.Errorf("the cloud can't be read: %w", err)
	}
}

// inCloud wraps a function that reads a part from the cloud, so that it connects first.
func (c *collector) inCloud(look func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := c.connect(); err != nil {
			return err
		}
		return explained(look(ctx))
	}
}

func (c *collector) network(ctx context.Context) (err error) {
	if c.s.Config.Network == "" {
		return nil
	}
	c.s.Network, err = c.cloud.InspectNetwork(ctx, c.s.Config.Network)
	return err
}

// servers runs after network: its list must contain every gateway of the routes that were read.
func (c *collector) servers(ctx context.Context) (err error) {
	var network int64
	switch {
	case c.s.Network != nil:
		network = c.s.Network.ID
	case c.s.Config.Network != "" && c.want.Parts&PartNetwork != 0:
		return errNotSeen("servers can't be distinguished from others' while the network is not seen")
	case c.s.Config.Network != "":
		found, err := c.cloud.InspectNetwork(ctx, c.s.Config.Network)
		if err != nil {
			return err
		}
		network = found.ID
	}
	c.s.Servers, err = c.cloud.Servers(network).List(ctx, time.Time{})
	return err
}

func (c *collector) loadBalancers(ctx context.Context) (err error) {
	if c.s.LoadBalancers, err = c.cloud.LoadBalancers().All(ctx); err != nil ||
		len(c.s.LoadBalancers) == 0 {
		return err // without load balancers no certificate is in use
	}
	c.s.Certificates, err = c.cloud.LoadBalancers().Certificates(ctx)
	return err
}
