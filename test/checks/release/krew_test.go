package release

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const pluginFile = "deploy/krew/underlay.yaml"

// plugin is a whole manifest of krew.
type plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// hasThePlugin compares the manifest with the archives that it names.
func hasThePlugin(t *testing.T, files map[string][]byte) {
	var p plugin
	if err := yaml.UnmarshalStrict(files["underlay.yaml"], &p); err != nil {
		t.Fatal(err)
	}
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Metadata.Name != "underlay" || p.Spec.Version != "v0.2.0" {
		t.Errorf("it is the %s %s %s of %s, version %s", p.APIVersion, p.Kind, p.Metadata.Name, pluginFile, p.Spec.Version)
	}
	// Users of krew have no checkout: all URLs refer to the release's tag.
	const raw = "https://raw.githubusercontent.com/underlay-ccm/underlay/v0.2.0/"
	named := regexp.MustCompile(`\S*deploy/\S+`).FindAllString(p.Spec.Caveats, -1)
	for _, name := range named {
		path, at := strings.CutPrefix(name, raw)
		if _, err := os.Stat(filepath.Join(underlay, path)); !at || err != nil {
			t.Errorf("the caveats name %s, want a file of this tree below %s: %v", name, raw, err)
		}
	}
	if len(named) == 0 {
		t.Errorf("the caveats don't say which rights it needs: %s", p.Spec.Caveats)
	}
	// Rules of krew's index.
	if short := p.Spec.ShortDescription; len(short) == 0 || len(short) > 60 || strings.HasSuffix(short, ".") {
		t.Errorf("shortDescription %q", short)
	}
	if len(p.Spec.Platforms) != 4 {
		t.Errorf("%d platforms", len(p.Spec.Platforms))
	}
	for _, platform := range p.Spec.Platforms {
		system, arch := platform.Selector.MatchLabels["os"], platform.Selector.MatchLabels["arch"]
		name := "kubectl-underlay-" + system + "-" + arch + ".tar.gz"
		if want := "https://github.com/underlay-ccm/underlay/releases/download/v0.2.0/" + name; platform.URI != want || platform.Bin != "kubectl-underlay" {
			t.Errorf("%s of %s, want %s", platform.Bin, platform.URI, want)
		}
		if platform.SHA256 != sumOf(files[name]) {
			t.Errorf("%s has the checksum %s, the manifest says %q", name, sumOf(files[name]), platform.SHA256)
		}
		inside := unpacked(t, files[name])
		magic := map[string]string{"linux": "\x7fELF", "darwin": "\xcf\xfa\xed\xfe"}[system]
		if len(inside) != 2 || !strings.HasPrefix(string(inside["kubectl-underlay"]), magic) || !strings.Contains(string(inside["LICENSE"]), "Apache") {
			t.Errorf("%s doesn't hold a program of %s and the license", name, system)
		}
	}
	if strings.Contains(string(files["underlay.yaml"]), "v0.0.0") || !strings.HasPrefix(string(files["underlay.yaml"]), "apiVersion: ") {
		t.Errorf("the manifest is\n%s", files["underlay.yaml"])
	}
}
