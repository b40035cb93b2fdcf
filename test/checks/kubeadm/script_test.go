package kubeadm

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write deploy/cloud-init/node.sh anew")

// script writes the files of the user data on a machine without cloud-init.
func (d userData) script() string {
	var b strings.Builder
	b.WriteString(`#!/bin/bash
# Generated from node.yaml by "go test ./test/checks/kubeadm -run TestDocumentScript -update". Do not edit.
#
# Writes the files of node.yaml on a machine without user data, such as a
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
