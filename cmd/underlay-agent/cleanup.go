//go:build linux

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
)

// cleanup takes away everything of ours and says what.
func cleanup(ctx context.Context, o *options, out io.Writer) error {
	parts, err := o.parts()
	if err != nil {
		return err
	}
	network, err := kernel.Open()
	if err != nil {
		return err
	}
	defer network.Close()
	routes := func(ctx context.Context) ([]string, error) { return agent.Cleanup(ctx, network) }
	return parts.cleanupAll(ctx, routes, func(line string) { fmt.Fprintln(out, line) })
}
