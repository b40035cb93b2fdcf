package socket

import (
	"context"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/layer2"
)

// Open opens a wire in the network namespace of the calling thread.
func Open(ctx context.Context, link layer2.Link, family addresses.Family) (layer2.Wire, error) {
	panic("in the making")
}
