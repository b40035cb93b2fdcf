package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Watch calls changed when a configuration or a plugin is created, changed or removed, until the
// context is done. A missing folder of plugins is not watched.
func (n *Network) Watch(ctx context.Context, changed func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching CNI configurations: %w", err)
	}
	defer watcher.Close()
	for _, dir := range []string{n.options.ConfDir, n.options.StateDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("watching CNI configurations: %w", err)
		}
		if err := watcher.Add(dir); err != nil {
			return fmt.Errorf("watching CNI configurations in %s: %w", dir, err)
		}
	}
	for _, dir := range n.options.BinDirs {
		if err := watcher.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watching CNI plugins in %s: %w", dir, err)
		}
	}
	// Changes before the watch started were not observed.
	changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			// Other files in StateDir belong to other packages.
			if filepath.Dir(event.Name) != filepath.Clean(n.options.StateDir) || event.Name == n.file() {
				changed()
			}
		case err := <-watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watching CNI configurations: %w", err)
			}
			changed()
		}
	}
}
