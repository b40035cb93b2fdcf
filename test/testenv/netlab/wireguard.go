//go:build linux

package netlab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// tunnelSockets is the folder of the sockets by which WireGuard programs are configured.
const tunnelSockets = "/var/run/wireguard"

// startTunnels starts the program that acts as the machine's WireGuard device, unless it runs.
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

// withTunnels is within with a mount namespace in which the program finds only the machine's own
// WireGuard device.
func (m *Machine) withTunnels(name, path string, args ...string) (*process.Process, error) {
	own := fmt.Sprintf("mount --bind %s %s && exec \"$@\"", m.path("wireguard"), tunnelSockets)
	return m.within(name, "unshare", append([]string{"--mount", "sh", "-c", own, "sh", path}, args...)...)
}

// TunnelHandshakes returns, for each peer of the device by its key, whether it has completed a
// handshake.
func (m *Machine) TunnelHandshakes() (map[string]bool, error) {
	conn, err := net.Dial("unix", filepath.Join(m.path("wireguard"), agent.TunnelLink+".sock"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("get=1\n\n")); err != nil {
		return nil, err
	}
	shaken, peer := map[string]bool{}, ""
	for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != ""; {
		switch key, value, _ := strings.Cut(lines.Text(), "="); key {
		case "public_key":
			peer = value
			shaken[peer] = false
		case "last_handshake_time_sec":
			shaken[peer] = value != "0"
		}
	}
	return shaken, nil
}

// LoseTunnelKey deletes the machine's key. Its agent creates another when it starts.
func (m *Machine) LoseTunnelKey() error { return os.Remove(m.path("keys/wireguard.key")) }
