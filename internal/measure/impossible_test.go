package measure

import (
	"os"
	"strings"
	"testing"
)

// TestImpossibleFactsAreTold: what no run finds out stands in the how-to too, where somebody decides
// whether a run is worth it.
func TestImpossibleFactsAreTold(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/measure-your-cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range impossibleFacts() {
		if !strings.Contains(string(page), "`"+string(f.ID)+"`") {
			t.Errorf("the how-to doesn't name %s: %s", f.ID, f.Question)
		}
	}
}
