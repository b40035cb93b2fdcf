//go:build linux

package machine

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// A lack of inotify instances, with which programs would exit after their start, is reported
// before.
func TestTooFewWatchersAreReported(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := watchable(min(most, 5)); err != nil {
		t.Error(err)
	}
	if err := watchable(most + 1); err == nil || !strings.Contains(err.Error(), "max_user_instances") {
		t.Errorf("%v", err)
	}
}
