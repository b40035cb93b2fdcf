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

// tunnelPort returns the port of the WireGuard devices by the lab's settings.
func (f *Lab) tunnelPort() int {
	port := 51820
	if _, line, found := strings.Cut(f.options.Settings, "wireguardPort: "); found {
		_, _ = fmt.Sscan(line, &port)
	}
	return port
}

// startTunnels starts the program that acts as the machine's WireGuard device, unless it runs.
func (m *Machine) startTunnels(ctx context.Context) error {
	link := agent.TunnelLink(m.lab.tunnelPort())
	if running := m.tunnels[link]; running != nil && !running.Ended() {
		return nil
	}
	for _, folder := range []string{tunnelSockets, m.path("wireguard")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	device, err := m.withTunnels("wireguard", m.lab.options.WireGuard, "--foreground", link)
	if err != nil {
		return err
	}
	if m.tunnels == nil {
		m.tunnels = map[string]*process.Process{}
	}
	m.tunnels[link] = device
	return wait.PollUntilContextTimeout(ctx, pollEvery, readyWithin, true,
		func(ctx context.Context) (bool, error) {
			_, err := m.Namespace.Run(ctx, "ip", "link", "show", link)
			if err != nil && device.Ended() {
				return false, device.Failure(device.Died())
			}
			return err == nil, nil
		})
}

// withTunnels is within with a mount namespace in which the program finds only the machine's own
// WireGuard device.
func (m *Machine) withTunnels(name, path string, args ...string) (*process.Process, error) {
	return m.within(name, "unshare", m.seeingTunnels(path, args...)...)
}

func (m *Machine) seeingTunnels(path string, args ...string) []string {
	own := fmt.Sprintf("mount --bind %s %s && exec \"$@\"", m.path("wireguard"), tunnelSockets)
	return append([]string{"--mount", "sh", "-c", own, "sh", path}, args...)
}

// CheckAgent runs underlay-agent check and returns what it prints.
func (m *Machine) CheckAgent(ctx context.Context) (string, error) {
	return m.Namespace.Run(ctx, "unshare", m.seeingTunnels(m.lab.options.Agent, append([]string{"check"}, m.agentFlags()...)...)...)
}

// TunnelHandshakes returns, for each peer of the device by its key, whether it has completed a
// handshake.
func (m *Machine) TunnelHandshakes() (map[string]bool, error) {
	conn, err := net.Dial("unix", filepath.Join(m.path("wireguard"), agent.TunnelLink(m.lab.tunnelPort())+".sock"))
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
func (m *Machine) LoseTunnelKey() error {
	return os.Remove(m.path(fmt.Sprintf("keys/wireguard-%d.key", m.lab.tunnelPort())))
}
