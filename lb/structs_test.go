package lb_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// A larger struct is split by topic. An embedded struct counts as one field.
func TestNoWideStruct(t *testing.T) {
	const most = 20
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, named := n.(*ast.TypeSpec)
			if !named {
				return true
			}
			if of, is := spec.Type.(*ast.StructType); is {
				fields := 0
				for _, f := range of.Fields.List {
					fields += max(1, len(f.Names))
				}
				if fields > most {
					t.Errorf("%s: %s has %d fields, more than %d", name, spec.Name, fields, most)
				}
			}
			return true
		})
	}
}
