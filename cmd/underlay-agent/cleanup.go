//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// cleanup removes everything that run created. Its last line is always the same, because a pod
// that runs cleanup is restarted repeatedly, each time with a new log.
func cleanup(ctx context.Context, o *options, out io.Writer) error {
	if wrong := o.places(); len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	m, err := o.open()
	if err != nil {
		return err
	}
	defer m.network.Close()
	routes := func(ctx context.Context) ([]string, error) {
		changed, err := agent.Cleanup(ctx, m.network)
		removed, deviceErr := o.removeDevices(ctx)
		return append(changed, removed...), errors.Join(err, deviceErr)
	}
	err = m.cleanupAll(ctx, routes, func(line string) { fmt.Fprintln(out, line) })
	// The next run would restore the held addresses.
	switch failed := os.Remove(o.heldPath()); {
	case failed == nil:
		fmt.Fprintln(out, "addresses: "+o.heldPath()+" is removed")
	case !errors.Is(failed, fs.ErrNotExist):
		err = errors.Join(err,
			fmt.Errorf("removing the record of the addresses that this node holds: %w", failed))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "nothing of underlay is left on this node")
	return err
}
