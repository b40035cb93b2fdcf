package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeBill writes PROGRAM.cdx.json, in the version of the format that current tools read.
func (r release) writeBill(folder string, p program) error {
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(r.bill(p), cdx.SpecVersion1_6); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, p.file+".cdx.json"), out.Bytes(), 0o644)
}

func (r release) bill(p program) *cdx.BOM {
	main := cdx.Component{
		BOMRef: "pkg:golang/" + p.Path + "@" + r.version, Type: cdx.ComponentTypeApplication,
		Name: p.Path, Version: r.version, PackageURL: "pkg:golang/" + p.Main.Path + "@" + r.version,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.sha256}},
		Properties: p.settings(),
	}
	var libraries []cdx.Component
	var refs []string
	for _, m := range p.modules() {
		c := cdx.Component{
			BOMRef: m.purl(), Type: cdx.ComponentTypeLibrary,
			Name: m.path, Version: m.version, Scope: cdx.ScopeRequired, PackageURL: m.purl(),
		}
		if m.sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.sum}}
		}
		libraries, refs = append(libraries, c), append(refs, c.BOMRef)
	}
	bill := cdx.NewBOM()
	bill.SerialNumber = serialNumber(p)
	bill.Metadata = &cdx.Metadata{Timestamp: r.date, Component: &main}
	bill.Components = &libraries
	// The build information has no edges between modules, so all depend on the program.
	bill.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bill
}

// settings returns the build settings that affect the program, such as GOARCH.
func (p program) settings() *[]cdx.Property {
	all := []cdx.Property{{Name: "go:version", Value: p.GoVersion}}
	for _, s := range p.Settings {
		all = append(all, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	return &all
}

// serialNumber returns a UUID of the program's content (RFC 9562, version 8), so that it does not
// depend on where the program is built.
func serialNumber(p program) string {
	id := sha256.Sum256([]byte(p.file + " " + p.sha256))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
}
