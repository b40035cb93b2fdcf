package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// SpecPrograms are the paths of the programs for the images of upstream's specs, and of the folder
// of agnhost's source.
type SpecPrograms struct{ Agnhost, AgnhostSource, CoreDNS, OutOfWindow string }

// specRegistry is the registry of upstream's images for its specs.
const specRegistry = "registry.k8s.io/"

// specPackages maps programs that specs run in pods to their packages of Debian, beside those that
// every machine has.
func specPackages() map[string]string {
	return map[string]string{
		"curl": "curl", "dig": "bind9-dnsutils", "nslookup": "bind9-dnsutils", "nc.openbsd": "netcat-openbsd", "wget": "wget",
	}
}

// Specs builds those of the images with these full names that specs of the network run. Programs
// that upstream installs from Alpine are Debian's, from this machine. No spec sends requests to
// nginx, so its replacement only waits.
func Specs(ctx context.Context, programs SpecPrograms, names []string) (map[string]Image, error) {
	base := Files{}
	for _, program := range append(slices.Sorted(maps.Keys(specPackages())),
		"bash", "cat", "date", "dash", "dd", "echo", "getent", "grep", "head", "hostname", "ls", "sed", "seq", "sleep", "ss", "tail", "test", "tr", "true") {
		files, err := HostProgram(ctx, program)
		if errors.Is(err, exec.ErrNotFound) && specPackages()[program] != "" {
			return nil, fmt.Errorf("images of upstream's specs: %w: install %s", err, specPackages()[program])
		}
		if err != nil {
			return nil, fmt.Errorf("images of upstream's specs: %w", err)
		}
		for path, source := range files {
			base[inUsr(path)] = source
		}
	}
	dns := Image{
		Layers: []Files{base}, Env: []string{Path},
		Links: map[string]string{
			"/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64",
			"/usr/bin/sh": "dash", "/usr/bin/nc": "nc.openbsd",
		},
		// The empty files create folders that programs write to.
		Texts: map[string]string{"/etc/nsswitch.conf": "hosts: files dns\n", "/etc/wgetrc": "tries = 1\n", "/tmp/.keep": "", "/uploads/.keep": ""},
	}
	agnhost := dns
	agnhost.Layers = []Files{base, {"/agnhost": programs.Agnhost, "/agnhost-2": programs.Agnhost, "/coredns": programs.CoreDNS}, {
		"/localhost.crt": filepath.Join(programs.AgnhostSource, "porter/localhost.crt"),
		"/localhost.key": filepath.Join(programs.AgnhostSource, "porter/localhost.key"),
	}}
	agnhost.Entrypoint, agnhost.Command = []string{"/agnhost"}, []string{"pause"}
	images := map[string]Image{
		"agnhost": agnhost, "busybox": dns, "distroless-iptables": dns, "glibc-dns-testing": dns, "nginx": agnhost,
		"regression-issue-74839": {Layers: []Files{{"/out-of-window": programs.OutOfWindow}}, Entrypoint: []string{"/out-of-window"}},
	}

	named := map[string]Image{}
	for _, full := range names {
		short, _, _ := strings.Cut(path.Base(full), ":")
		if image, ok := images[short]; ok && strings.HasPrefix(full, specRegistry) {
			named[full] = image
		}
	}
	return named, nil
}

// inUsr returns the path of a file where /bin, /lib and others are links into /usr.
func inUsr(path string) string {
	for _, folder := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(path, folder) {
			return "/usr" + path
		}
	}
	return path
}
