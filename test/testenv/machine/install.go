//go:build linux

package machine

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed scripts
var scripts embed.FS

// Supported returns why this host can't run machines; nil if it can.
func Supported() error {
	if os.Geteuid() != 0 {
		return errors.New("not root: machines are made of namespaces, mounts and control groups")
	}
	folders, err := hierarchies()
	if err != nil {
		return fmt.Errorf("look for control groups: %w", err)
	}
	for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "devices"} {
		if !strings.Contains(strings.Join(folders, ",")+",", controller+",") {
			return fmt.Errorf("no cgroup v1 hierarchy for %s is mounted", controller)
		}
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil || !strings.Contains(string(known), "\toverlay\n") {
		return fmt.Errorf("the kernel has no overlayfs (%v)", err)
	}
	for _, program := range []string{"unshare", "nsenter", "mount", "pivot_root", "ip", "hostname"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	for _, compiler := range []string{"cc", "gcc"} {
		if _, err := exec.LookPath(compiler); err == nil {
			return headers()
		}
	}
	return errors.New("no C compiler to build runc with: install gcc")
}

// headers returns which of the headers that runc's build needs are missing.
func headers() error {
	if !exists(seccompHeader) {
		return fmt.Errorf("build runc: %s is missing: install libseccomp-dev", seccompHeader)
	}
	return nil
}

// install creates the state of the machine before its first boot: a root file system with as little
// of the host's /etc as its programs need, and the replacing scripts.
func (m *Machine) install(ctx context.Context) error {
	for _, folder := range []string{
		"usr", "usr-work", "local/bin", "local/sbin", "local/lib/machine", "root/usr", "root/proc", "root/sys", "root/dev", "root/run", "root/tmp", "root/root", "root/home",
		"root/etc/machine/kubelet.conf.d", "root/etc/machine/units", "root/etc/machine/enabled",
		"root/etc/apt/sources.list.d", "root/etc/sysctl.d", "root/var/log", "root/var/lib", "root/var/tmp", "root/opt", "root/mnt",
	} {
		if err := os.MkdirAll(m.file(folder), 0o755); err != nil {
			return err
		}
	}
	for _, folder := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+folder, m.file("root/"+folder)); err != nil {
			return err
		}
	}
	if err := os.Symlink("../run", m.file("root/var/run")); err != nil {
		return err
	}
	programs, err := os.ReadDir(m.o.Programs.Path("bin"))
	if err != nil {
		return err
	}
	for _, program := range programs {
		if err := os.Symlink("../lib/machine/bin/"+program.Name(), m.file("local/bin/"+program.Name())); err != nil {
			return err
		}
	}
	var copied []string
	for _, name := range []string{
		"alternatives", "group", "iproute2", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "os-release",
		"passwd", "protocols", "services", "ssl",
	} {
		if exists("/etc/" + name) {
			copied = append(copied, "/etc/"+name)
		}
	}
	cp := exec.CommandContext(ctx, "cp", append(append([]string{"--archive"}, copied...), m.file("root/etc/"))...)
	if out, err := cp.CombinedOutput(); err != nil {
		return fmt.Errorf("copy what programs need of /etc: %w: %s", err, out)
	}
	for name, content := range map[string]string{
		"root/etc/hostname": m.o.Name + "\n",
		"root/etc/hosts":    fmt.Sprintf("127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.1.1 %s\n", m.o.Name),
		// An address without a host: CoreDNS requires one, and sends it no requests about the
		// cluster.
		"root/etc/resolv.conf": "nameserver 198.51.100.53\n",
	} {
		if err := os.WriteFile(m.file(name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return m.installScripts()
}

func (m *Machine) installScripts() error {
	places := map[string]string{
		"scripts/boot.sh":         "boot",
		"scripts/init.sh":         "root/etc/machine/init",
		"scripts/containerd.toml": "root/etc/machine/containerd.toml",
		"scripts/kubelet.conf":    "root/etc/machine/kubelet.conf.d/90-machine.conf",
	}
	standIns, err := fs.Glob(scripts, "scripts/bin/*")
	if err != nil {
		return err
	}
	for _, script := range standIns {
		places[script] = "root/etc/machine/bin/" + filepath.Base(script)
	}
	for script, place := range places {
		content, err := scripts.ReadFile(script)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(m.file(place)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(m.file(place), content, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
