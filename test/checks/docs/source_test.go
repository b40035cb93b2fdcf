package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// source is a file of what ships.
type source struct {
	path, folder string // from the module's root, with slashes
	content      []byte
	tree         *ast.File
}

// shipped are the folders whose code ends up in the programs.
var shipped = []string{"addresses", "cmd", "internal", "ipam", "lb", "routes"}

// sources parses every file of what ships, tests and the simulator left out.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	files := token.NewFileSet()
	for _, top := range shipped {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "hcloudsim"):
				return filepath.SkipDir
			case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			tree, err := parser.ParseFile(files, path, content, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			relative = filepath.ToSlash(relative)
			all = append(all, source{relative, filepath.ToSlash(filepath.Dir(relative)), content, tree})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// parsed is a file that nobody wrote to disk.
func parsed(t *testing.T, folder, content string) source {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), folder+"/f.go", content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{folder + "/f.go", folder, []byte(content), tree}
}
