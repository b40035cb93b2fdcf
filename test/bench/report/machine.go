package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

// machine describes this machine, from Linux' own account; values that are missing there are empty.
func machine(ctx context.Context, tree string) (results.Machine, error) {
	m := results.Machine{
		CPU: procLine("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Kernel: procFile("/proc/sys/kernel/osrelease"),
	}
	if kb, err := strconv.Atoi(strings.TrimSuffix(procLine("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		m.MemoryGB = (kb + 1<<19) >> 20
	}
	ask := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = tree
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	var err error
	if m.Go, err = ask("go", "env", "GOVERSION"); err != nil {
		return m, err
	}
	m.Underlay, err = ask("git", "describe", "--tags", "--match", "v*", "--dirty", "--always")
	return m, err
}

func procFile(path string) string {
	content, _ := os.ReadFile(path)
	return strings.TrimSpace(string(content))
}

// procLine returns the value of the first line with a key.
func procLine(path, key string) string {
	for line := range strings.Lines(procFile(path)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
