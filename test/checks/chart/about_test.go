package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhatTheHubShows: Artifact Hub shows the chart's README.md and icon, and a link there has no
// page to be relative to. What lies in this repository has to be there.
func TestWhatTheHubShows(t *testing.T) {
	c := loaded(t)
	var readme string
	for _, file := range c.Files {
		if file.Name == "README.md" {
			readme = string(file.Data)
		}
	}
	if !strings.Contains(readme, "\nhelm install underlay oci://") {
		t.Errorf("the packaged README.md doesn't show how to install:\n%s", readme)
	}
	for _, link := range regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(readme, -1) {
		if !strings.HasPrefix(link[1], "https://") {
			t.Errorf("README.md has the link %s, want a whole URL", link[1])
		}
	}
	if !strings.HasSuffix(c.Metadata.Icon, ".svg") {
		t.Errorf("the icon is %q", c.Metadata.Icon)
	}
	ours := regexp.MustCompile(`https://(?:raw\.githubusercontent\.com/underlay-ccm/underlay|github\.com/underlay-ccm/underlay/blob)/main/([^#)\s]+)`)
	named := ours.FindAllStringSubmatch(readme+" "+c.Metadata.Icon+" "+c.Metadata.Annotations["artifacthub.io/links"], -1)
	for _, url := range named {
		if _, err := os.Stat(filepath.Join(deploy, "..", url[1])); err != nil {
			t.Errorf("%s leads nowhere: %v", url[0], err)
		}
	}
	if len(named) < 8 {
		t.Errorf("only %v lead into the repository", named)
	}
}
