package chart

import (
	"flag"
	"fmt"
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
	// installed are the manifests that test/testenv/kubeadm, which has no Helm, installs on its
	// clusters.
	installed = "../test/testenv/kubeadm/underlay"
	// golden contains the results of values that nothing in deploy uses; test/checks/deploy applies
	// them to an API server.
	golden = "../test/checks/chart/testdata/"
)

var update = flag.Bool("update", false, "write the rendered manifests anew instead of comparing them")

// header names the origin of a rendered file.
const header = `# Rendered by "make manifests" from deploy/chart with %[1]s.
# For a cluster of yours render it with values of your own, or change a copy:
#
#   helm template underlay deploy/chart --namespace kube-system --values %[1]s
#
`

// TestRendered compares the plain manifests, and the results of every other value, with the chart.
func TestRendered(t *testing.T) {
	want := map[string]string{}
	plain := renderFile(t, "values/hcloud.yaml")
	delete(plain, notes)
	for name, content := range plain {
		want[name] = fmt.Sprintf(header, "deploy/values/hcloud.yaml") + content
	}
	want["metal/underlay.yaml"] = fmt.Sprintf(header, "deploy/values/metal.yaml") + oneFile(renderFile(t, "values/metal.yaml"))
	const images = "images: {registry: registry.example.com/you}"
	want[installed+".yaml"] = "# What the tutorial's helm command installs. Rendered by \"make manifests\".\n" +
		oneFile(renderFile(t, "kubeadm/cloud-dual-stack/values.yaml", images))
	// As in docs/how-to/addresses-on-one-segment.md; the values end with the key config.
	const pool = `  addresses: {pools: [{name: segment, ranges: [192.0.2.32-192.0.2.63, "2001:db8:1::100/123"]}]}`
	want[installed+"-metal.yaml"] = "# What helm makes of the example for metal, and a pool of addresses. Rendered by \"make manifests\".\n" +
		oneFile(renderFile(t, "kubeadm/metal-dual-stack/values.yaml", pool, images))
	for _, name := range []string{"three", "more", "everything"} {
		files := renderFile(t, golden+name+".values.yaml")
		if name == "three" {
			want[golden+"notes.txt"] = files[notes]
		}
		// Dashboards are rendered unchanged; files that are the same in deploy are left out.
		maps.DeleteFunc(files, func(file, content string) bool {
			return file == "dashboards.yaml" || content == plain[file]
		})
		want[golden+name+".yaml"] = fmt.Sprintf("# Rendered by \"make manifests\" with %s.values.yaml.\n", name) + oneFile(files)
	}
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
}

// renderFile renders with a file of values below deploy and further lines appended.
func renderFile(t *testing.T, values string, more ...string) map[string]string {
	t.Helper()
	files, err := render(t, content(t, filepath.Join(deploy, values))+strings.Join(more, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// oneFile joins manifests in the order of their names.
func oneFile(files map[string]string) string {
	delete(files, notes)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all = append(all, files[name])
	}
	return strings.Join(all, "---\n")
}

// compare compares a file below deploy, or writes it.
func compare(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(deploy, name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := content(t, path)
	if strings.Contains(want, " \n") {
		t.Errorf("deploy/%s: blanks at the end of a line", name)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range wantLines {
		if i >= len(gotLines) || gotLines[i] != wantLines[i] {
			t.Errorf("deploy/%s, line %d: the chart makes %q; run \"make manifests\"", name, i+1, wantLines[i])
			return
		}
	}
	if len(gotLines) > len(wantLines) {
		t.Errorf("deploy/%s: has more lines than the chart makes; run \"make manifests\"", name)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	read, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(read)
}
