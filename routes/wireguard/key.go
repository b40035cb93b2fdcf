//go:build linux

package wireguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const keyFile = "wireguard.key"

// loadKey returns the machine's private key, and creates it if there is none. Only root can read
// the file, and it is complete or missing.
func loadKey(dir string) (wgtypes.Key, error) {
	path := filepath.Join(dir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(dir, path)
	}
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("reading the WireGuard key: %w", err)
	}
	key, err := wgtypes.ParseKey(strings.TrimSpace(string(text)))
	if err != nil { // the cause may contain the text
		return wgtypes.Key{}, fmt.Errorf("%s is no WireGuard key; delete it, and the agent creates another", path)
	}
	return key, nil
}

func createKey(dir, path string) (wgtypes.Key, error) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return key, fmt.Errorf("creating a WireGuard key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return key, fmt.Errorf("storing the WireGuard key: %w", err)
	}
	temporary, err := os.CreateTemp(dir, "."+keyFile) // mode 0600
	if err != nil {
		return key, fmt.Errorf("storing the WireGuard key: %w", err)
	}
	_, err = temporary.WriteString(key.String() + "\n")
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return key, errors.Join(fmt.Errorf("storing the WireGuard key: %w", err), os.Remove(temporary.Name()))
	}
	return key, nil
}

// ForgetKey deletes the machine's key, and reports whether there was one.
func ForgetKey(dir string) (bool, error) {
	err := os.Remove(filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
