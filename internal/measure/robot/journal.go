package robot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// blockTime is how long the web service blocks an address, and how long it is assumed to count
// failed logins.
const blockTime = 10 * time.Minute

// mostFailures within blockTime are safe; one more blocks.
const mostFailures = 2

// Journal notes when logins failed, or may have, so that the runs of one machine know of each
// other. It holds times and nothing else.
type Journal struct {
	path  string // empty: nothing outlives the process
	times []time.Time
}

// OpenJournal reads the file, which need not exist; an empty path is a journal of this process.
func OpenJournal(path string) (*Journal, error) {
	j := &Journal{path: path}
	if path == "" {
		return j, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading when logins at Robot failed: %w; remove the file", err)
	}
	for line := range strings.Lines(string(text)) {
		at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("%s: a line is no time; wait ten minutes and remove the file", path)
		}
		j.times = append(j.times, at)
	}
	return j, nil
}

// JournalError says that a login was not tried, because it could be the one that blocks this address.
type JournalError struct {
	Failed int // logins that failed, or may have
	Until  time.Time
}

func (e *JournalError) Error() string {
	return fmt.Sprintf("logins at Robot from this machine that failed, or may have: %d, and three block its "+
		"address for ten minutes; try again after %s", e.Failed, e.Until.UTC().Format(time.RFC3339))
}

// failed are how many logins within blockTime failed, or may have.
func (j *Journal) failed(now time.Time) int {
	j.times = slices.DeleteFunc(j.times, func(t time.Time) bool { return now.Sub(t) >= blockTime })
	return len(j.times)
}

// safeAt is when the oldest of them no longer counts.
func (j *Journal) safeAt() time.Time {
	return slices.MinFunc(j.times, time.Time.Compare).Add(blockTime)
}

// note says that a login goes now, which may fail.
func (j *Journal) note(now time.Time) error {
	j.times = append(j.times, now)
	return j.write()
}

// strike takes back what was noted at a time: that login was accepted.
func (j *Journal) strike(at time.Time) error {
	j.times = slices.DeleteFunc(j.times, at.Equal)
	return j.write()
}

func (j *Journal) write() error {
	if j.path == "" {
		return nil
	}
	var text strings.Builder
	for _, t := range j.times {
		fmt.Fprintln(&text, t.UTC().Format(time.RFC3339Nano))
	}
	err := os.MkdirAll(filepath.Dir(j.path), 0o700)
	if err == nil {
		err = os.WriteFile(j.path, []byte(text.String()), 0o600)
	}
	if err != nil {
		return fmt.Errorf("noting a login at Robot, before it is tried: %w; make the file writable", err)
	}
	return nil
}
