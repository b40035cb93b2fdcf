//go:build linux

package wireguard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The key outlives the process, is only root's, and is in no error.
func TestKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "underlay")
	first, err := loadKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadKey(dir)
	if err != nil || again != first {
		t.Errorf("another key after a restart (%v)", err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, keyFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v (%v)", path, info.Mode().Perm(), want, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v (%v)", files, err)
	}
	if forgotten, err := ForgetKey(dir); err != nil || !forgotten {
		t.Errorf("forgotten: %v, %v", forgotten, err)
	}
	if forgotten, err := ForgetKey(dir); err != nil || forgotten {
		t.Errorf("forgotten twice: %v, %v", forgotten, err)
	}
}

func TestADamagedKeyIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, keyFile)
	if err := os.WriteFile(path, []byte("damaged-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := loadKey(dir)
	if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "damaged-secret") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "damaged-secret" {
		t.Errorf("the file has %q (%v)", text, err)
	}
}
