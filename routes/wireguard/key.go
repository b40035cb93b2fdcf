//go:build linux

package wireguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/underlay-ccm/underlay/internal/secret"
)

// keyPath returns the path of the private key of the device with the port.
func keyPath(dir string, port int) string {
	return filepath.Join(dir, fmt.Sprintf("wireguard-%d.key", port))
}

// Ports returns the ports of the devices with keys in the folder.
func Ports(dir string) (ports []int, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "wireguard-*.key"))
	for _, path := range paths {
		var port int
		if _, err := fmt.Sscanf(filepath.Base(path), "wireguard-%d.key", &port); err == nil &&
			path == keyPath(dir, port) {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return ports, err
}

// loadKey returns a private key, and creates it if there is none. Only root can read the file, and
// it is complete or missing.
func loadKey(path string) (wgtypes.Key, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(path)
	}
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("reading the WireGuard key: %w", err)
	}
	key, err := wgtypes.ParseKey(strings.TrimSpace(string(text)))
	if err != nil { // the cause may contain the text
		return wgtypes.Key{},
			fmt.Errorf("%s is no WireGuard key; delete it, and the agent creates another", path)
	}
	return key, nil
}

// LoadPreshared returns the pre-shared key in a file; empty without a path.
func LoadPreshared(path string) (secret.Text, error) {
	if path == "" {
		return secret.Text{}, nil
	}
	content, err := os.ReadFile(path)
	if err == nil {
		_, err = parsePreshared(string(content))
	}
	if err != nil {
		return secret.Text{}, fmt.Errorf("%w; the file is to hold the output of wg genpsk, the same on each node: the chart's wireguard.secretName names the Secret that it comes from", err)
	}
	return secret.New(string(content)), nil
}

func parsePreshared(text string) (wgtypes.Key, error) {
	key, err := wgtypes.ParseKey(strings.TrimSpace(text))
	if err != nil || key == (wgtypes.Key{}) { // the cause may contain the text
		return wgtypes.Key{}, errors.New("is no WireGuard key")
	}
	return key, nil
}

func createKey(path string) (wgtypes.Key, error) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return key, fmt.Errorf("creating a WireGuard key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return key, fmt.Errorf("storing the WireGuard key: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".wireguard") // mode 0600
	if err != nil {
		return key, fmt.Errorf("storing the WireGuard key: %w", err)
	}
	_, err = temporary.WriteString(key.String() + "\n")
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return key,
			errors.Join(fmt.Errorf("storing the WireGuard key: %w", err), os.Remove(temporary.Name()))
	}
	return key, nil
}
