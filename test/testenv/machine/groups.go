//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// groupPrefix is the prefix of the names of machines' control groups. The ID of the process that
// booted the machine follows.
const groupPrefix = "underlay-machine-"

// hierarchies are the folders of the cgroup v1 hierarchies.
func hierarchies() ([]string, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, err
	}
	var folders []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[2] == "cgroup" {
			folders = append(folders, fields[1])
		}
	}
	return folders, nil
}

// removeGroups removes a group from every hierarchy, with all groups below it. Nothing runs in it,
// but the kernel may need a moment until it is empty.
func removeGroups(group string) error {
	folders, err := hierarchies()
	for _, folder := range folders {
		root := filepath.Join(folder, group)
		var last error
		waited := await(context.Background(), goneWithin, func() (bool, error) {
			last = removeTree(root)
			return last == nil, nil
		})
		if waited != nil {
			err = errors.Join(err, fmt.Errorf("control group %s: %w", root, last))
		}
	}
	return err
}

// removeTree removes groups from the bottom up. Their files are removed with them, and can't be
// removed alone.
func removeTree(root string) error {
	var groups []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	for _, group := range slices.Backward(groups) {
		err = errors.Join(err, syscall.Rmdir(group))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweepGroups removes the groups of processes that were killed. A failure has no consequences.
func sweepGroups() {
	folders, _ := hierarchies()
	for _, folder := range folders {
		left, _ := filepath.Glob(filepath.Join(folder, groupPrefix+"*"))
		for _, group := range left {
			owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(group), groupPrefix), "-")
			if pid, err := strconv.Atoi(owner); err == nil &&
				errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				_ = removeTree(group)
			}
		}
	}
}
