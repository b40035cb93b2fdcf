//go:build linux

package netlab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/wait"
)

// conflist is the agent's CNI configuration as a container runtime reads it.
// https://www.cni.dev/docs/spec/#configuration-format
type conflist struct {
	Version string           `json:"cniVersion"`
	Name    string           `json:"name"`
	Plugins []map[string]any `json:"plugins"`
}

// attachment is the result of a plugin's ADD.
type attachment struct {
	IPs []struct {
		Address netip.Prefix `json:"address"`
	} `json:"ips"`
}

// configuration returns the first configuration of the machine's folder by name, as runtimes do. It
// waits until one exists, as a kubelet does.
func (m *Machine) configuration(ctx context.Context) (conflist, error) {
	var found conflist
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollEvery, readyWithin, true,
		func(context.Context) (bool, error) {
			files, err := filepath.Glob(filepath.Join(m.ConfigDir(), "*.conflist"))
			if err != nil || len(files) == 0 {
				last = errors.Join(err, fmt.Errorf("no CNI configuration in %s", m.ConfigDir()))
				return false, nil
			}
			content, err := os.ReadFile(slices.Min(files))
			if err == nil {
				err = json.Unmarshal(content, &found)
			}
			last = err
			return err == nil, nil
		})
	if err != nil {
		return found, fmt.Errorf("%w: %w", err, last)
	}
	return found, nil
}

// cni calls the plugins for a pod as a container runtime does: for ADD in order, each with the
// result of the previous one; for DEL in reverse order.
func (m *Machine) cni(ctx context.Context, command string, p *Pod) (attachment, error) {
	file, err := m.configuration(ctx)
	if err != nil {
		return attachment{}, err
	}
	plugins := slices.Clone(file.Plugins)
	if command == "DEL" {
		slices.Reverse(plugins)
	}
	for _, plugin := range plugins {
		config := maps.Clone(plugin)
		config["cniVersion"], config["name"] = file.Version, file.Name
		if len(p.result) > 0 {
			config["prevResult"] = p.result
		}
		out, err := m.plugin(ctx, command, p, config)
		if err != nil {
			return attachment{}, err
		}
		if command == "ADD" {
			p.result = out
		}
	}
	var reported attachment
	if command == "ADD" {
		err = json.Unmarshal(p.result, &reported)
	}
	return reported, err
}

func (m *Machine) plugin(
	ctx context.Context, command string, p *Pod, config map[string]any,
) ([]byte, error) {
	input, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	folder := m.lab.options.Plugins
	name, _ := config["type"].(string)
	var out []byte
	entered := m.Namespace.Do(func() {
		cmd := exec.CommandContext(ctx, filepath.Join(folder, name))
		cmd.Stdin = bytes.NewReader(input)
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+p.Name,
			"CNI_NETNS="+p.Namespace.Path(), "CNI_IFNAME=eth0", "CNI_PATH="+folder)
		out, err = cmd.Output()
	})
	if err := errors.Join(entered, err); err != nil {
		return nil, fmt.Errorf("CNI plugin %s %s for pod %s: %w: %s", name, command, p.Name, err, out)
	}
	return out, nil
}
