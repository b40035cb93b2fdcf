// Command audit compares the requests of Underlay's accounts to the API servers of a whole test run
// with the permissions of deploy/:
//
//	UNDERLAY_AUDIT_DIR=/tmp/records go test ./...
//	go run ./test/checks/permissions /tmp/records
//
// No request may have been forbidden, and every permission must be used. Both have exceptions, in
// tables with a reason each, and a row that isn't true fails the comparison too. So does a partial
// run: its unused permissions would mean nothing. `make test` ends with it.
//
// A use counts only if the account's own program sent the request; a test that borrows the
// account's token proves nothing about the program. A forbidden request counts from any program.
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/underlay-ccm/underlay/test/checks/rbac"
	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: go run ./test/checks/permissions FOLDER, from the root of the source tree; FOLDER is what %s named while the tests ran\n", controlplane.RecordsVariable)
		os.Exit(2)
	}
	// Tests that need root are skipped.
	whole := os.Geteuid() == 0 || complete.Promised()
	if err := run(os.Args[1], whole, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(folder string, whole bool, out io.Writer) error {
	records, err := controlplane.ReadRecords(folder)
	if err != nil {
		return err
	}
	accounts, err := shipped("deploy")
	if err != nil {
		return err
	}
	found := compare(records, accounts, ourTables())
	if !whole {
		fmt.Fprintln(out, "Not root, so tests of agents were skipped: looked for what was forbidden, and not for what was unused.")
	}
	complaints := found.complaints(whole)
	if len(complaints) == 0 {
		fmt.Fprint(out, found.summary(accounts))
		return nil
	}
	return fmt.Errorf("%s\nThe records stay in %[2]s; `go run ./test/checks/permissions %[2]s` compares them again", strings.Join(complaints, "\n"), folder)
}

// shipped reads every manifest of a folder except the chart's templates, from which the others are
// rendered.
func shipped(folder string) ([]rbac.Account, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("find the manifests, from the root of the source tree: %w", err)
		case entry.Name() == "chart", entry.Name() == "alerts": // alerts binds Prometheus' account
			return filepath.SkipDir
		case filepath.Ext(path) == ".yaml":
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rbac.Read(files...)
}
