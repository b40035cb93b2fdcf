//go:build linux

package main

import (
	"context"
	"errors"
	"slices"

	"github.com/underlay-ccm/underlay/internal/secret"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/wireguard"
)

// tunnels opens the WireGuard device with the port, and after it those with other ports that have
// keys. They are closed with the process.
func tunnels(
	keyDir string, port int, preshared secret.Text,
) (devices []*wireguard.Device, err error) {
	ports, err := wireguard.Ports(keyDir)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(ports, func(p int) bool { return p == port })
	for _, p := range append([]int{port}, others...) {
		d, err := wireguard.Open(keyDir, p)
		if err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	return devices, devices[0].SetPreshared(preshared)
}

// removeDevices deletes the WireGuard devices and their keys.
func (o *options) removeDevices(ctx context.Context) (changed []string, err error) {
	ports, err := wireguard.Ports(o.keyDir)
	for _, port := range ports {
		device, failed := wireguard.Open(o.keyDir, port)
		if failed == nil {
			failed = errors.Join(device.Remove(ctx, true), device.Close())
		}
		if err = errors.Join(err, failed); failed == nil {
			changed = append(changed, agent.TunnelLink(port)+" is removed, and its key")
		}
	}
	return changed, err
}
