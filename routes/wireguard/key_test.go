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
	"testing"
)

// The key outlives the process, is only root's, and is in no error.
func TestKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "underlay")
	path := keyPath(dir, 51820)
	first, err := loadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadKey(path)
	if err != nil || again != first {
		t.Errorf("another key after a restart (%v)", err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v (%v)", path, info.Mode().Perm(), want, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v (%v)", files, err)
	}
	if _, err := loadKey(keyPath(dir, 4000)); err != nil {
		t.Fatal(err)
	}
	if ports, err := Ports(dir); err != nil || !slices.Equal(ports, []int{4000, 51820}) {
		t.Errorf("ports %v, %v", ports, err)
	}
}

func TestADamagedKeyIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	path := keyPath(dir, 51820)
	if err := os.WriteFile(path, []byte("damaged-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := loadKey(path)
	if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "damaged-secret") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "damaged-secret" {
		t.Errorf("the file has %q (%v)", text, err)
	}
}

// A pre-shared key is readable and complete, and is in no error and in no output.
func TestPresharedKey(t *testing.T) {
	const text = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
	for name, c := range map[string]struct{ content, want string }{
		"good": {text + "\n", ""}, "short": {text[4:], "no WireGuard key"}, "two": {text + "\n" + text, "no WireGuard key"},
		"empty": {"", "no WireGuard key"}, "zero": {strings.Repeat("A", 43) + "=", "no WireGuard key"},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := LoadPreshared(path)
		shown := fmt.Sprintf("%+v %v", key, err)
		if (err == nil) != (c.want == "") || !strings.Contains(shown, c.want) || strings.Contains(shown, text[4:20]) {
			t.Errorf("%s: %s", name, shown)
		}
		if err == nil && key.Reveal() != c.content {
			t.Errorf("%s: another key", name)
		}
	}
	if _, err := LoadPreshared("/nowhere/key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if key, err := LoadPreshared(""); err != nil || key.Reveal() != "" {
		t.Errorf("a key without a path (%v)", err)
	}
}
