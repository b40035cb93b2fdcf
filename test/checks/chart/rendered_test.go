package chart

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	deploy = "../../../deploy"
	source = deploy + "/chart"
	// sums is what test/checks/deploy, which has no Helm, compares files with.
	sums = deploy + "/rendered.sha256"
	// tutorial and metal are what test/testenv/kubeadm, which has no Helm, installs on its clusters.
	tutorial = "../test/testenv/kubeadm/underlay.yaml"
	metal    = "../test/testenv/kubeadm/underlay-metal.yaml"
)

var update = flag.Bool("update", false, "write the rendered manifests anew instead of comparing them")

// header says where a rendered file comes from.
const header = `# Rendered by "make manifests" from deploy/chart with %[1]s.
# For a cluster of yours render it with values of your own, or change a copy:
#
#   helm template underlay deploy/chart --namespace kube-system --values %[1]s
#
`

// TestRendered holds the plain manifests to the chart.
func TestRendered(t *testing.T) {
	want := map[string]string{}
	for name, content := range renderFile(t, "values/hcloud.yaml") {
		want[name] = fmt.Sprintf(header, "deploy/values/hcloud.yaml") + content
	}
	want["metal/underlay.yaml"] = fmt.Sprintf(header, "deploy/values/metal.yaml") + oneFile(renderFile(t, "values/metal.yaml"))
	want[tutorial] = "# What the tutorial's helm command installs. Rendered by \"make manifests\".\n" +
		oneFile(renderFile(t, "kubeadm/cloud-dual-stack/values.yaml", "images: {registry: registry.example.com/you}"))
	want[metal] = "# What helm makes of the example for metal. Rendered by \"make manifests\".\n" +
		oneFile(renderFile(t, "kubeadm/metal-dual-stack/values.yaml", "images: {registry: registry.example.com/you}"))
	for name, content := range want {
		compare(t, name, content)
	}
	for _, folder := range []string{"ccm", "agent", "metal"} {
		found, err := filepath.Glob(filepath.Join(deploy, folder, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if name := folder + "/" + filepath.Base(path); want[name] == "" {
				t.Errorf("deploy/%s: no template makes it; remove the file", name)
			}
		}
	}
	compare(t, filepath.Base(sums), checksums(t, want))
}

// renderFile renders with a file of values below deploy and further lines for its end, all but
// the notes.
func renderFile(t *testing.T, values string, more ...string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(deploy, values))
	if err != nil {
		t.Fatal(err)
	}
	files, err := render(t.Context(), source, namespace, string(content)+strings.Join(more, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	delete(files, "NOTES.txt")
	return files
}

// oneFile joins files in the order of their names.
func oneFile(files map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all = append(all, files[name])
	}
	return strings.Join(all, "---\n")
}

// checksums are of everything that rendering reads and writes, in the form that
// "sha256sum --check" reads.
func checksums(t *testing.T, rendered map[string]string) string {
	t.Helper()
	contents := maps.Clone(rendered)
	for _, part := range []string{"chart", "values", "kubeadm/cloud-dual-stack/values.yaml", "kubeadm/metal-dual-stack/values.yaml"} {
		err := filepath.WalkDir(filepath.Join(deploy, part), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(deploy, path)
			contents[filepath.ToSlash(name)] = string(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256([]byte(contents[name])), name)
	}
	return lines.String()
}

// compare compares a file below deploy, or writes it.
func compare(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(deploy, name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	if bytes.Equal(got, []byte(want)) {
		return
	}
	gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	for i := range wantLines {
		if i >= len(gotLines) || gotLines[i] != wantLines[i] {
			t.Errorf("deploy/%s, line %d: the chart makes %q; run \"make manifests\"", name, i+1, wantLines[i])
			return
		}
	}
	t.Errorf("deploy/%s: has more lines than the chart makes; run \"make manifests\"", name)
}
