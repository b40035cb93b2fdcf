//go:build linux

package main

import (
	"context"
	"errors"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
	"github.com/underlay-ccm/underlay/routes/wireguard"
)

// machine is the local network, which must be closed, and the parts.
type machine struct {
	network *kernel.Kernel
	parts
}

// open opens the machine; it changes nothing.
func (o *options) open() (machine, error) {
	parts, err := o.parts()
	if err != nil {
		return machine{}, err
	}
	network, err := kernel.Open()
	if err != nil {
		return machine{}, err
	}
	return machine{network: network, parts: parts}, nil
}

// removeDevice deletes the WireGuard device and its key.
func (o *options) removeDevice(ctx context.Context) (changed []string, err error) {
	device, err := wireguard.Open(o.keyDir, 0)
	if err != nil {
		return nil, err
	}
	removed, err := device.Remove(ctx)
	if removed {
		changed = append(changed, agent.TunnelLink+" is removed")
	}
	forgotten, keyErr := wireguard.ForgetKey(o.keyDir)
	if forgotten {
		changed = append(changed, "this machine's key is removed")
	}
	return changed, errors.Join(err, keyErr, device.Close())
}
