package metallb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"

	"github.com/underlay-ccm/underlay/test/testenv/module"
)

// The constant of FRR's API that MetalLB uses and the version of go.mod lacks: a list of prefixes,
// which is only filled for FRR.
const (
	lackingField = "\ntype Advertise struct {\n"
	lackingType  = "package v1beta1\n\ntype AsPathPrependPrefixes struct {\n\tPrefixes      []string\n\tAsPathPrepend uint8\n}\n"
)

// withFRR writes a module file for the build, in which FRR's API is a copy with the missing part
// added. The module proxies don't have the version that the release requires.
func withFRR(ctx context.Context, b module.Built, folder string) (string, error) {
	const path, api = "github.com/metallb/frr-k8s", "api/v1beta1"
	source, err := b.Folder(ctx, path)
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(folder, "frr-k8s")
	if err := os.CopyFS(filepath.Join(replacement, api), os.DirFS(filepath.Join(source,
		api))); err != nil {
		return "", err
	}
	types := filepath.Join(replacement, api, "frrconfiguration_types.go")
	content, err := os.ReadFile(types)
	if err != nil {
		return "", err
	}
	if bytes.Count(content, []byte(lackingField)) != 1 {
		return "", fmt.Errorf("%s does not have %q once", types, lackingField)
	}
	content = bytes.Replace(content, []byte(lackingField),
		[]byte(lackingField+"\tPrefixesWithAsPathPrepend []AsPathPrependPrefixes `json:\"-\"`\n"), 1)
	err = errors.Join(
		os.Chmod(filepath.Join(replacement, api), 0o755), // files in the module cache are read-only
		os.WriteFile(filepath.Join(replacement, api, "lacking.go"), []byte(lackingType), 0o644),
		replaceFile(types, content),
		copyFile(filepath.Join(source, "go.mod"), filepath.Join(replacement, "go.mod")),
		copyFile(filepath.Join(b.Source, "go.sum"), filepath.Join(folder, "go.sum")),
	)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(b.Source, "go.mod"))
	if err != nil {
		return "", err
	}
	mod, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return "", err
	}
	if err := mod.AddReplace(path, "", replacement, ""); err != nil {
		return "", err
	}
	mod.Cleanup()
	text, err = mod.Format()
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "go.mod")
	return file, os.WriteFile(file, text, 0o644)
}

// replaceFile replaces a read-only file.
func replaceFile(path string, content []byte) error {
	return errors.Join(os.Remove(path), os.WriteFile(path, content, 0o644))
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
