//go:build linux

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// start boots a machine for a test.
func start(t *testing.T, name string) *machine.Machine {
	t.Helper()
	if err := machine.Supported(); err != nil {
		complete.Skip(t, err.Error())
	}
	programs, err := machine.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	network, err := netns.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	m, err := machine.New(t.Context(), machine.Options{
		Name: name, Dir: filepath.Join(t.TempDir(), name), Network: network, Programs: programs,
	})
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
	return m
}

// do runs a shell line on a machine.
func do(t *testing.T, m *machine.Machine, line string) string {
	t.Helper()
	out, err := m.Run(t.Context(), "bash", "-ec", line)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// hostValues are settings that a machine must not change.
func hostValues(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, key := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/hostname",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "kernel/pid_max", "net/ipv4/ip_forward",
	} {
		value, err := os.ReadFile("/proc/sys/" + key)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(key + "=" + string(value))
	}
	return all.String()
}

func TestAMachineIsAPlaceOfItsOwn(t *testing.T) {
	before := hostValues(t)
	m := start(t, "one")
	for line, want := range map[string]string{
		"hostname":             "one",
		"cat /proc/1/comm":     "init",
		"ls /sys/class/net":    "lo",
		"stat -fc %T /tmp":     "tmpfs",
		"command -v systemctl": "/etc/machine/bin/systemctl",
		"echo 1 >/proc/sys/vm/overcommit_memory && cat /proc/sys/vm/overcommit_memory": "1",
		"echo 1 >/proc/sys/net/ipv4/ip_forward && cat /proc/sys/net/ipv4/ip_forward":   "1",
		"echo 5 2>&1 >/proc/sys/kernel/pid_max || echo refused":                        "refused",
		"echo of-mine >/usr/share/mine && cat /usr/share/mine":                         "of-mine",
		"cut -d: -f3 /proc/1/cgroup | sort -u":                                         "/",
	} {
		if got := do(t, m, line); !strings.HasSuffix(got, want) {
			t.Errorf("%s: says %q, want %q", line, got, want)
		}
	}
	if after := hostValues(t); after != before {
		t.Errorf("the host's values were\n%s\nand are\n%s", before, after)
	}
	if _, err := os.Stat("/usr/share/mine"); !os.IsNotExist(err) {
		t.Errorf("a file of the machine is on the host: %v", err)
	}
	if _, err := m.Run(t.Context(), "false"); err == nil {
		t.Error("a program that fails is no error")
	}
}

// Files remain, processes and /run don't, and installed services start again.
func TestPullPlugAndReboot(t *testing.T) {
	m := start(t, "one")
	if err := m.WriteFile("/etc/containerd/config.toml", []byte("version = 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	do(t, m, "apt-get -qq install --yes -o Dpkg::Options::=--force-confold containerd.io kubernetes-cni")
	do(t, m, "systemctl is-active containerd && ls /opt/cni/bin/portmap && touch /run/gone /var/lib/kept")
	if err := m.PullPlug(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*/underlay-machine-*")
	for _, group := range left {
		if procs, err := os.ReadFile(group + "/cgroup.procs"); err == nil && len(procs) == 0 && strings.Contains(group, fmt.Sprintf("machine-%d-", os.Getpid())) {
			t.Errorf("control group %s is left (%v)", group, err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(t.Context(), "true"); err == nil {
		t.Error("a program ran on a machine without power")
	}
	began := time.Now()
	if err := m.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(t, m, "! ls /run/gone && ls /var/lib/kept")
	do(t, m, "for try in $(seq 100); do ctr version >/dev/null && exit; sleep 0.1; done; exit 1")
	t.Logf("on again, with containerd, after %s", time.Since(began).Round(time.Millisecond))
	if got := do(t, m, "containerd --config /run/containerd.toml config dump | grep -E 'restrict_oom|SystemdCgroup'"); !strings.Contains(got, "restrict_oom_score_adj = true") {
		t.Errorf("containerd's configuration says %s", got)
	}
}
