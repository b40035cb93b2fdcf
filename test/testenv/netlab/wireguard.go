//go:build linux

package netlab

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// tunnelSockets is where WireGuard programs listen for settings.
const tunnelSockets = "/var/run/wireguard"

// startTunnels starts the program that is the machine's WireGuard device, unless it runs.
func (m *Machine) startTunnels(ctx context.Context) error {
	if m.tunnels != nil && !m.tunnels.Ended() {
		return nil
	}
	for _, folder := range []string{tunnelSockets, m.path("wireguard")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	var err error
	if m.tunnels, err = m.withTunnels("wireguard", m.lab.options.WireGuard, "--foreground", agent.TunnelLink); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, pollEvery, readyWithin, true, func(ctx context.Context) (bool, error) {
		_, err := m.Namespace.Run(ctx, "ip", "link", "show", agent.TunnelLink)
		if err != nil && m.tunnels.Ended() {
			return false, m.tunnels.Failure(m.tunnels.Died())
		}
		return err == nil, nil
	})
}

// withTunnels is within, where the program sees the machine's WireGuard device alone.
func (m *Machine) withTunnels(name, path string, args ...string) (*process.Process, error) {
	own := fmt.Sprintf("mount --bind %s %s && exec \"$@\"", m.path("wireguard"), tunnelSockets)
	return m.within(name, "unshare", append([]string{"--mount", "sh", "-c", own, "sh", path}, args...)...)
}
