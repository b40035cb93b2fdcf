package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// program is a Go program of the release.
type program struct {
	file   string // its name
	sha256 string
	*debug.BuildInfo
}

// readPrograms returns the files of a folder that have Go's build information, sorted by name.
func readPrograms(folder string) ([]program, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var found []program
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			continue // a chart, a text
		}
		sum, err := sumOf(path)
		if err != nil {
			return nil, err
		}
		found = append(found, program{entry.Name(), sum, info})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no program of Go is in it", folder)
	}
	return found, nil
}

func sumOf(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}

// module is a linked module, or Go's standard library.
type module struct{ path, version, sum string }

// modules returns the dependencies of a program, the standard library first. A replaced module has
// the name of its replacement.
func (p program) modules() []module {
	all := []module{{path: "std", version: strings.TrimPrefix(p.GoVersion, "go")}}
	for _, m := range p.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, module{m.Path, m.Version, m.Sum})
	}
	return all
}

// purl returns the module's package URL (https://github.com/package-url/purl-spec, type golang).
func (m module) purl() string { return "pkg:golang/" + m.path + "@" + m.version }

// dirHash returns the checksum of go.sum in hexadecimal, which in-toto calls dirHash: SHA-256 over
// a list of the module's files. It is empty if the build information has none.
func (m module) dirHash() string {
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:"))
	if err != nil {
		return ""
	}
	return hex.EncodeToString(sum)
}
