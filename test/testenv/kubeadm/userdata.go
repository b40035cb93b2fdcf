//go:build linux

package kubeadm

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
)

// userData are the keys of cloud-init in deploy/cloud-init/node.yaml; support for any other key has
// to be added here. https://docs.cloud-init.io/en/latest/reference/modules.html
type userData struct {
	PackageUpdate bool       `json:"package_update"`
	Packages      []string   `json:"packages"`
	WriteFiles    []file     `json:"write_files"`
	Runcmd        [][]string `json:"runcmd"`
}

type file struct{ Path, Permissions, Content string }

// Initialize applies the shipped user data on a machine's first boot as cloud-init does, after each
// text in it is replaced by the next, as its marks EDIT require.
func Initialize(ctx context.Context, m *machine.Machine, instead ...string) error {
	content, err := Edited(ctx, "cloud-init/node.yaml", instead...)
	if err != nil {
		return err
	}
	var data userData
	if err := yaml.UnmarshalStrict([]byte(content), &data); err != nil {
		return fmt.Errorf("deploy/cloud-init/node.yaml: %w", err)
	}
	for _, f := range data.WriteFiles {
		mode, err := strconv.ParseUint(cmp.Or(f.Permissions, "0644"), 8, 32)
		if err != nil {
			return fmt.Errorf("deploy/cloud-init/node.yaml: permissions of %s: %w", f.Path, err)
		}
		if err := m.WriteFile(f.Path, []byte(f.Content), fs.FileMode(mode)); err != nil {
			return err
		}
	}
	var commands [][]string
	if data.PackageUpdate {
		commands = append(commands, []string{"apt-get", "-q", "update"})
	}
	commands = append(commands, slices.Concat([]string{"apt-get", "-q", "install", "--yes"}, data.Packages))
	for _, command := range append(commands, data.Runcmd...) {
		if _, err := m.Run(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}

// Edited returns a file of deploy in which each text is replaced by the next. A missing text is an
// error.
func Edited(ctx context.Context, name string, instead ...string) (string, error) {
	deploy, err := cluster.Manifests(ctx)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(deploy, name))
	if err != nil {
		return "", err
	}
	text := string(content)
	for i := 0; i < len(instead); i += 2 {
		if !strings.Contains(text, instead[i]) {
			return "", fmt.Errorf("deploy/%s has no %q", name, instead[i])
		}
		text = strings.ReplaceAll(text, instead[i], instead[i+1])
	}
	return text, nil
}
