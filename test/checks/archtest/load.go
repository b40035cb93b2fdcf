package archtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// LoadPackages lists the packages of the module in dir by `go list`. Packages that do not compile
// are listed too: other checks report their errors.
func LoadPackages(ctx context.Context, dir string) ([]Package, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e",
		"-json=ImportPath,Name,Doc,GoFiles,CgoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the module's packages: %w", err)
	}
	var packages []Package
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var listed struct {
			ImportPath, Name, Doc              string
			GoFiles, CgoFiles                  []string
			Imports, TestImports, XTestImports []string
		}
		err := decoder.Decode(&listed)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse what go list says: %w", err)
		}
		packages = append(packages, Package{
			Path:        listed.ImportPath,
			Program:     listed.Name == "main",
			Doc:         listed.Doc,
			Code:        len(listed.GoFiles) + len(listed.CgoFiles),
			Imports:     listed.Imports,
			TestImports: slices.Concat(listed.TestImports, listed.XTestImports),
		})
	}
}

// LoadFiles reads every Go file below dir, including those of nested modules and other platforms,
// and excluding those that Go ignores: hidden folders, testdata and vendor.
func LoadFiles(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != dir && (strings.HasPrefix(name, ".") || name == "testdata" || name == "vendor") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files = append(files, File{Name: filepath.ToSlash(relative), Content: content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the module's files: %w", err)
	}
	return files, nil
}
