// Attest describes the contents and the origin of a release. It writes a software bill of materials
// in CycloneDX's format for each program in a folder, and one in-toto statement with SLSA's
// provenance predicate for all files.
//
// It reads the build information that the Go linker recorded in the programs, so it lists the
// linked modules and not all modules of go.mod. Its output depends only on the files and the flags.
package main

import (
	"flag"
	"fmt"
	"os"
)

// release is the build as the flags describe it.
type release struct {
	version string // such as v0.1.0
	commit  string // the full hash
	date    string // the commit's, in RFC 3339
	source  string // URI of the repository
	builder string // URI of the builder, for SLSA's builder.id
	images  string // path of a file that names images; none if empty
}

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "version of the release")
	flag.StringVar(&r.commit, "commit", "", "hash of the commit")
	flag.StringVar(&r.date, "date", "", "date of the commit, in RFC 3339")
	flag.StringVar(&r.source, "source", "", "URI of the repository")
	flag.StringVar(&r.builder, "builder", "", "URI of the builder")
	flag.StringVar(&r.images, "images", "",
		"file with a line \"NAME DIGEST\" for each image of the release")
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

// attest writes the bills of materials first, since the statement covers them too.
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
