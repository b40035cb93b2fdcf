package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common/util"
)

// TestEveryFileOfValues: all that lie in deploy, such as beside kubeadm's
// configurations, make objects that decode strictly, and settings that the
// programs take. values-….yaml is given to Helm beside the values.yaml of its folder.
func TestEveryFileOfValues(t *testing.T) {
	var paths []string
	err := filepath.WalkDir(deploy, func(path string, entry fs.DirEntry, err error) error {
		named, _ := filepath.Match("values*.yaml", entry.Name())
		ofValues := named || filepath.Dir(path) == filepath.Join(deploy, "values")
		if err != nil || entry.IsDir() || !ofValues || filepath.Dir(path) == filepath.Clean(source) {
			return err
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 7 {
		t.Errorf("only %v found", paths)
	}
	var asked []settings
	for _, path := range paths {
		values := parsed(t, content(t, path))
		if strings.HasPrefix(filepath.Base(path), "values-") {
			values = util.CoalesceTables(values, parsed(t, content(t, filepath.Join(filepath.Dir(path), "values.yaml"))))
		}
		files, err := renderChart(t.Context(), loaded(t), namespace, values)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		asked = append(asked, given(t, files))
		delete(files, "NOTES.txt")
		for _, file := range files {
			documents(t, file)
		}
	}
	for i, a := range ask(t, asked) {
		if a.refused() {
			t.Errorf("%s: the programs say\n%s\n%s", paths[i], a.Manager, a.Agent)
		}
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
