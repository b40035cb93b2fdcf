package hetzner

import (
	"context"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Exclusive runs do as a change of the network.
func (n *Network) Exclusive(ctx context.Context, do func(context.Context) error) error {
	return n.exclusive(ctx, func(ctx context.Context, _ *hcloud.Network) error { return do(ctx) })
}
