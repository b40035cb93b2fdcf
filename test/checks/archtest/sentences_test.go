package archtest_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/archtest"
)

var update = flag.Bool("update", false, "write what the page says of imports anew")

const pagePath = module + "/docs/explanation/architecture.md"

// What the page says and shows of imports is written from the rules and the imports, so it can't
// drift from them.
func TestDocumentSentences(t *testing.T) {
	packages, err := archtest.LoadPackages(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	got, want := string(content), string(content)
	for name, text := range map[string]string{
		"pure": archtest.Deciding(packages), "importers": "\n" + archtest.Importers(),
		"picture": "\n" + archtest.Picture(packages) + "\n",
	} {
		if want = between(t, want, name, text); !strings.Contains(text, "hcloud") {
			t.Errorf("nothing to say of %s", name)
		}
	}
	if *update {
		if err := os.WriteFile(pagePath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Error(`docs/explanation/architecture.md does not say what the rules say: run "make generate"`)
	}
	byHand := regexp.MustCompile("(?i)only [^.;|]*imports?\\b|only `[^.;|]*speaks?\\b")
	if found := byHand.FindAllString(between(t, got, "importers", ""), -1); found != nil {
		t.Errorf("%q: who may import what is said by the table that is written from the rules", found)
	}
}

// between puts a text between the marks of a name, which have to be there once.
func between(t *testing.T, page, name, text string) string {
	t.Helper()
	begin, end := "<!-- begin "+name+" -->", "<!-- end "+name+" -->"
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended || strings.Contains(after, begin) {
		t.Fatalf("%s has to have %s and %s once", pagePath, begin, end)
	}
	return before + begin + text + end + after
}
