package archtest_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/archtest"
)

var update = flag.Bool("update", false, "draw the picture of the packages anew")

const picturePath = module + "/docs/explanation/architecture.svg"

// The picture of the packages is drawn from the imports, so it can't drift from them.
func TestDocumentPicture(t *testing.T) {
	packages, err := archtest.LoadPackages(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	got := archtest.Picture(packages)
	for _, path := range []string{"cmd/underlay-ccm", "ipam", "routes", "lb", "hcloudsim"} {
		if !strings.Contains(got, ">"+path+"<") {
			t.Errorf("the picture has no %s", path)
		}
	}
	if *update {
		if err := os.WriteFile(picturePath, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(picturePath)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Error("docs/explanation/architecture.svg is not drawn from today's imports: run \"make generate\"")
	}
}
