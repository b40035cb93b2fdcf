// Attest says what a release is made of: beside each program in a folder it writes a software bill
// of materials in CycloneDX's format, and for all files together one statement of where they come
// from, in the form of in-toto with SLSA's predicate.
//
// It reads what the Go linker has recorded in the programs, so it says what was linked and not what
// go.mod allows. It asks no clock, network or machine: the same files and flags give the same
// bytes.
package main

import (
	"flag"
	"fmt"
	"os"
)

// release is what the caller knows about the build.
type release struct {
	version string // such as v0.1.0
	commit  string // the full hash
	date    string // the commit's, in RFC 3339
	source  string // URI of the repository
	builder string // URI of whoever builds, for SLSA's builder.id
	images  string // path of a file that names images; none if empty
}

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "version of the release")
	flag.StringVar(&r.commit, "commit", "", "hash of the commit")
	flag.StringVar(&r.date, "date", "", "date of the commit, in RFC 3339")
	flag.StringVar(&r.source, "source", "", "URI of the repository")
	flag.StringVar(&r.builder, "builder", "", "URI of the builder")
	flag.StringVar(&r.images, "images", "", "file with a line \"NAME DIGEST\" for each image of the release")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "attest: give one folder, whose files are the release")
		os.Exit(2)
	}
	if err := r.attest(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "attest:", err)
		os.Exit(1)
	}
}

// attest writes the bills of materials first: the statement is about them too.
func (r release) attest(folder string) error {
	programs, err := readPrograms(folder)
	if err != nil {
		return err
	}
	for _, p := range programs {
		if err := r.writeBill(folder, p); err != nil {
			return fmt.Errorf("bill of materials of %s: %w", p.file, err)
		}
	}
	if err := r.writeStatement(folder, programs); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	return nil
}
