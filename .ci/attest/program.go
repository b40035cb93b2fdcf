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

// program is a file of the release that Go has linked.
type program struct {
	file   string // its name
	sha256 string
	*debug.BuildInfo
}

// readPrograms finds them by what Go has recorded in them, in the order of their names.
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

// module is one that was linked, or Go's own library.
type module struct{ path, version, sum string }

// modules are those of a program without its own, the standard library first. What go.mod replaces
// is named by what stands in its place.
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

// purl is the module's package URL (https://github.com/package-url/purl-spec, type golang).
func (m module) purl() string { return "pkg:golang/" + m.path + "@" + m.version }

// dirHash is the checksum of go.sum in hexadecimal: SHA-256 over a list of the module's files,
// which in-toto calls dirHash. Empty where Go has recorded none.
func (m module) dirHash() string {
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:"))
	if err != nil {
		return ""
	}
	return hex.EncodeToString(sum)
}
