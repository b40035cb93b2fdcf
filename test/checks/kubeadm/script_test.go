package kubeadm

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write deploy/cloud-init/node.sh anew")

// script writes the files of the user data on a machine that takes none.
func (d userData) script() string {
	var b strings.Builder
	b.WriteString(`#!/bin/bash
# Generated from node.yaml by "go test ./test/checks/kubeadm -run TestDocumentScript -update". Do not edit.
#
# Writes the files of node.yaml on a machine that takes no user data, such as a
# dedicated server. Then run make-node.
set -euo pipefail

# file PATH MODE: standard input becomes the file.
file() {
  mkdir -p "$(dirname "$1")"
  (umask 077 && cat >"$1")
  chmod "$2" "$1"
}
`)
	for _, f := range d.WriteFiles {
		mode := f.Permissions
		if mode == "" {
			mode = "0644"
		}
		fmt.Fprintf(&b, "\nfile %s %s <<'END-OF-FILE'\n%sEND-OF-FILE\n", f.Path, mode, f.Content)
	}
	return b.String()
}

func TestDocumentScript(t *testing.T) {
	want := shipped(t).script()
	name := filepath.Join(deploy, "cloud-init", "node.sh")
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, "cloud-init", "node.sh"); got != want {
		t.Error(`deploy/cloud-init/node.sh has not what node.yaml has: run "make generate"`)
	}
}

// The script leaves the files that cloud-init would, with their modes.
func TestScriptWritesTheFiles(t *testing.T) {
	root := t.TempDir()
	data := shipped(t)
	script := read(t, "cloud-init", "node.sh")
	for _, f := range data.WriteFiles {
		script = strings.Replace(script, "file "+f.Path+" ", "file "+path.Join(root, f.Path)+" ", 1)
	}
	command := exec.CommandContext(t.Context(), "bash")
	command.Stdin = strings.NewReader(script)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range data.WriteFiles {
		got, err := os.ReadFile(filepath.Join(root, f.Path))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != f.Content {
			t.Errorf("%s has\n%s\nwant\n%s", f.Path, got, f.Content)
		}
		info, err := os.Stat(filepath.Join(root, f.Path))
		if err != nil {
			t.Fatal(err)
		}
		want := fs.FileMode(0o644)
		if f.Permissions != "" {
			mode, err := strconv.ParseUint(f.Permissions, 8, 32)
			if err != nil {
				t.Fatal(err)
			}
			want = fs.FileMode(mode)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", f.Path, info.Mode().Perm(), want)
		}
	}
}
