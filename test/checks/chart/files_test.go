package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestEveryFileOfValues: all that lie in deploy, such as beside kubeadm's
// configurations, make objects that decode strictly, and settings that the
// programs take.
func TestEveryFileOfValues(t *testing.T) {
	var paths []string
	err := filepath.WalkDir(deploy, func(path string, entry fs.DirEntry, err error) error {
		ofValues := entry.Name() == "values.yaml" || filepath.Dir(path) == filepath.Join(deploy, "values")
		if err != nil || entry.IsDir() || !ofValues || filepath.Dir(path) == filepath.Clean(source) {
			return err
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 6 {
		t.Errorf("only %v found", paths)
	}
	var asked []settings
	for _, path := range paths {
		values, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files, err := render(t.Context(), source, namespace, string(values))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		asked = append(asked, given(t, files))
		delete(files, "NOTES.txt")
		for _, content := range files {
			documents(t, content)
		}
	}
	for i, a := range ask(t, asked) {
		if a.refused() {
			t.Errorf("%s: the programs say\n%s\n%s", paths[i], a.Manager, a.Agent)
		}
	}
}
