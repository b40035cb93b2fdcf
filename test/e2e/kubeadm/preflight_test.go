//go:build linux

package kubeadm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// A machine that was prepared as documented passes all of kubeadm's checks, with the files of every
// example. Only the checks of this machine's kernel are ignored.
func TestPreflight(t *testing.T) {
	kubeadm.NeedMachines(t)
	examples := []string{"cloud", "cloud-dual-stack", "metal", "metal-dual-stack"}
	m := prepared(t, examples...)
	for _, archive := range kubeadm.Archives() {
		if err := m.Import(t.Context(), filepath.Join(kubeadm.Packed(), archive)); err != nil {
			t.Fatal(err)
		}
	}
	for _, example := range examples {
		t.Run(example, func(t *testing.T) {
			for _, f := range []string{"init.yaml", "join.yaml"} {
				if err := m.WriteFile("/root/"+f, []byte(read(t, example, f)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := m.Run(t.Context(), "bash", "-c", "kubeadm init phase preflight --config /root/init.yaml 2>&1")
			if err != nil {
				t.Errorf("kubeadm init: %v", err)
			}
			warnsOfNothing(t, out)

			// There is no cluster to join: discovery follows the checks, and fails with this error.
			out, err = m.Run(t.Context(), "bash", "-c", "kubeadm join phase preflight --config <(cat /root/join.yaml; echo 'timeouts: {discovery: 1s}') 2>&1")
			if err == nil || !strings.Contains(out, "couldn't validate the identity of the API Server") || strings.Contains(out, "[ERROR") {
				t.Errorf("kubeadm join: %v", err)
			}
			warnsOfNothing(t, out)
		})
	}
}

// The checks can fail: without the settings of the user data, kubeadm reports errors.
func TestPreflightObjects(t *testing.T) {
	kubeadm.NeedMachines(t)
	m := prepared(t, "metal-dual-stack")
	for key, check := range map[string]string{
		"net.ipv4.ip_forward":              "FileContent--proc-sys-net-ipv4-ip_forward",
		"net.ipv6.conf.default.forwarding": "FileContent--proc-sys-net-ipv6-conf-default-forwarding",
	} {
		if err := m.WriteFile("/root/init.yaml", []byte(read(t, "metal-dual-stack", "init.yaml")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := m.Run(t.Context(), "bash", "-c", "sysctl -q -w "+key+"=0 && kubeadm init phase preflight --config /root/init.yaml 2>&1")
		if err == nil || !strings.Contains(out, check) {
			t.Errorf("with %s=0 kubeadm says\n%s", key, out)
		}
		if _, err := m.Run(t.Context(), "sysctl", "--quiet", "--system"); err != nil {
			t.Fatal(err)
		}
	}
}

// Kernel and cgroups are this machine's. The name that no server resolves is the test's.
var expected = regexp.MustCompile(`SystemVerification|hostname ".*" could not be reached|lookup .* on `)

// warnsOfNothing checks that a user who follows the documents gets no warnings.
func warnsOfNothing(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.Contains(line, "WARNING") && !expected.MatchString(line) {
			t.Errorf("kubeadm warns: %s", line)
		}
	}
}

// The user data sets forwarding, and leaves pods' interfaces alone: one that is created later
// forwards and accepts no router advertisements.
func TestUserDataLeavesAdvertisements(t *testing.T) {
	kubeadm.NeedMachines(t)
	m := prepared(t, "cloud-dual-stack")
	if _, err := m.Run(t.Context(), "ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"net.ipv4.ip_forward":              "1",
		"net.ipv6.conf.default.forwarding": "1",
		"net.ipv6.conf.eth0.accept_ra":     "2",
		"net.ipv6.conf.default.accept_ra":  "1",
		"net.ipv6.conf.veth0.forwarding":   "1",
		"net.ipv6.conf.veth0.accept_ra":    "1",
	} {
		out, err := m.Run(t.Context(), "sysctl", "-n", key)
		if got := strings.TrimSpace(out); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", key, got, err, want)
		}
	}
}

var nodeIP = regexp.MustCompile(`name: node-ip\s+value: (\S+)`)

// prepared returns a machine with the addresses of examples, on which cloud-init has run.
func prepared(t *testing.T, examples ...string) *machine.Machine {
	t.Helper()
	network, err := netns.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	batch := "link add eth0 type veth peer name eth0-cable\nlink set eth0 up\nlink set eth0-cable up\n"
	for _, example := range examples {
		for address := range strings.SplitSeq(nodeIP.FindStringSubmatch(read(t, example, "init.yaml"))[1], ",") {
			bits := 24
			if strings.Contains(address, ":") {
				bits = 64
			}
			batch += fmt.Sprintf("address replace %s/%d dev eth0\n", address, bits) // two may have the same
		}
	}
	if _, err := network.Feed(t.Context(), batch, "ip", "-batch", "-"); err != nil {
		t.Fatal(err)
	}
	m, err := newMachine(t.Context(), "control-1", filepath.Join(t.TempDir(), "control-1"), network)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(m.Logs())
		}
		if err := m.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := m.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := kubeadm.Initialize(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// read is a file of an example.
func read(t *testing.T, example, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(tree, "deploy/kubeadm", example, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
