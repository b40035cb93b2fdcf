package archtest_test

import (
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/archtest"
)

// module is the folder of the module, seen from here.
const module = "../../.."

func TestPackages(t *testing.T) {
	packages, err := archtest.LoadPackages(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 5 {
		t.Fatalf("only %d packages found: the checks would pass for want of anything to check", len(packages))
	}
	for name, check := range map[string]func([]archtest.Package) []string{
		"imports": archtest.CheckImports,
		"names":   archtest.CheckNames,
		"docs":    archtest.CheckDocs,
	} {
		t.Run(name, func(t *testing.T) {
			for _, violation := range check(packages) {
				t.Error(violation)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	files, err := archtest.LoadFiles(module)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d files found: the checks would pass for want of anything to check", len(files))
	}
	violations, err := archtest.CheckFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range violations {
		t.Error(violation)
	}
}
