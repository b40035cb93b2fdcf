package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// written opens what is at a path and writes into it.
func written(t *testing.T, w process, name, content string) {
	t.Helper()
	o, err := openOutput(w, "report", name)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	if err := o.write([]byte(content)); err != nil {
		t.Fatal(err)
	}
}

func expectContent(t *testing.T, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
	}
}

// What is at the path stays the same file: its mode, its names, and what leads to it.
func TestAnOutputStaysTheFileThatItWas(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	if err := os.WriteFile(at("file"), []byte("a text that is longer"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chmod(at("file"), 0o646), os.Link(at("file"), at("hard")), os.Symlink("file", at("soft")), os.Symlink("later", at("nowhere")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	written(t, process{}, at("soft"), "new")
	for _, name := range []string{"file", "hard", "soft"} {
		expectContent(t, at(name), "new")
	}
	if info, err := os.Lstat(at("file")); err != nil || info.Mode() != 0o646 {
		t.Errorf("the file's mode is %s, %v", info.Mode(), err)
	}
	written(t, process{}, at("nowhere"), "made")
	expectContent(t, at("later"), "made")
	for _, name := range []string{"soft", "nowhere"} {
		if info, err := os.Lstat(at(name)); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s is no symbolic link any more: %s, %v", name, info.Mode(), err)
		}
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 5 {
		t.Errorf("in the folder are %v", entries)
	}
}

func TestAnOutputThatIsNotWrittenChangesNothing(t *testing.T) {
	folder := t.TempDir()
	there := filepath.Join(folder, "there")
	if err := os.WriteFile(there, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{there, filepath.Join(folder, "new")} {
		o, err := openOutput(process{}, "report", name)
		if err != nil {
			t.Fatal(err)
		}
		o.close()
	}
	expectContent(t, there, "old")
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("in the folder are %v", entries)
	}
}

// What is written last counts, be it shorter.
func TestAnOutputIsWrittenTwice(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report")
	for range 2 { // the second time it is there already
		o, err := openOutput(process{}, "report", name)
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"a long text", "short"} {
			if err := o.write([]byte(content)); err != nil {
				t.Fatal(err)
			}
			expectContent(t, name, content)
		}
		o.close()
	}
}

func TestAnOutputIntoAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openOutput(process{}, "report", pipe); err == nil || !strings.Contains(err.Error(), "nobody reads there") {
		t.Errorf("a pipe that nobody reads: %v", err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	written(t, process{}, pipe, "through it")
	if got, err := io.ReadAll(reader); err != nil || string(got) != "through it" {
		t.Errorf("read was %q, %v", got, err)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("the pipe is %s, %v", info.Mode(), err)
	}
}

// As with --report /dev/stdout > file, where the table comes behind the report.
func TestAnOutputIntoStandardOutput(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	stdout, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	written(t, process{stdout: stdout}, name, "report\n")
	if _, err := stdout.WriteString("table\n"); err != nil {
		t.Fatal(err)
	}
	expectContent(t, name, "report\ntable\n")
}

// What can't be written is refused before anything is made, also where it is only looked.
func TestMeasureRefusesWhatItCannotWrite(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "same")
	if err := os.Symlink("same", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--report " + folder:                                               "--report " + folder + " is a folder",
		"--profile " + folder:                                              "--profile " + folder + " is a folder",
		"--report " + folder + "/no/r.md":                                  "--report " + folder + "/no/r.md can't be written: no such file or directory",
		"--profile " + file + " --report " + file:                          "are the same file",
		"--profile " + file + " --report " + filepath.Join(folder, "link"): "are the same file",
	} {
		for _, how := range []string{"--yes", "--dry-run"} {
			c := newMeasuredCloud(t, hcloudsim.Options{})
			_, code := c.call(t.Context(), append(strings.Fields(args), "--api-only", "--only", "rate-limit", how)...)
			if said := c.errs.String(); code != exitFailed || !strings.Contains(said, want) || strings.Contains(said, "/.") {
				t.Errorf("%s %s: exit code %d, %s, want %q", args, how, code, said, want)
			}
			if n := len(c.sim.Requests()); n != 0 {
				t.Errorf("%s: %d requests were sent", args, n)
			}
		}
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("in the folder are %v", entries)
	}
}
