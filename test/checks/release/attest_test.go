package release

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// dependency is a module that this tree requires, as lines of go.mod and go.sum.
func dependency(t *testing.T) (mod, sum string) {
	t.Helper()
	lines := func(file, prefix string) (found string) {
		content, err := os.ReadFile(underlay + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, prefix) {
				found += line + "\n"
			}
		}
		return found
	}
	mod = lines("go.mod", "golang.org/x/sys v")
	sum = lines("go.sum", strings.TrimSpace(mod))
	return "require " + mod, sum
}

// linked is that module as a package URL, and its checksum.
func linked(t *testing.T) (purl, sum string) {
	t.Helper()
	_, sums := dependency(t)
	words := strings.Fields(sums)
	return "pkg:golang/" + words[0] + "@" + words[1], words[2]
}

type component struct {
	Type, Name, Version, PURL string
	BOMRef                    string `json:"bom-ref"`
	Hashes                    []struct{ Alg, Content string }
	Properties                []struct{ Name, Value string }
}

func (c component) property(name string) string {
	for _, p := range c.Properties {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// hasBillsOfMaterials parses them as tools do that search for vulnerable modules.
func hasBillsOfMaterials(t *testing.T, files map[string][]byte) {
	serials := map[string]bool{}
	for _, arch := range []string{"amd64", "arm64"} {
		var bill struct {
			BOMFormat, SpecVersion, SerialNumber string
			Metadata                             struct {
				Timestamp string
				Component component
			}
			Components   []component
			Dependencies []struct {
				Ref       string
				DependsOn []string
			}
		}
		decode(t, files["program-linux-"+arch+".cdx.json"], &bill)
		if bill.BOMFormat != "CycloneDX" || bill.SpecVersion != "1.6" || bill.Metadata.Timestamp != "2026-12-01T07:00:00Z" {
			t.Errorf("%s %s of %s, want CycloneDX 1.6 of the commit's date", bill.BOMFormat, bill.SpecVersion, bill.Metadata.Timestamp)
		}
		if serials[bill.SerialNumber] || !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(bill.SerialNumber) {
			t.Errorf("serial number %q", bill.SerialNumber)
		}
		serials[bill.SerialNumber] = true
		main := bill.Metadata.Component
		if main.Version != "v0.2.0" || main.PURL != "pkg:golang/example.org/program@v0.2.0" || main.property("go:build:GOARCH") != arch {
			t.Errorf("it is about %+v", main)
		}
		if len(main.Hashes) != 1 || main.Hashes[0].Alg != "SHA-256" || main.Hashes[0].Content != sumOf(files["program-linux-"+arch]) {
			t.Errorf("its hashes are %v", main.Hashes)
		}
		purl, sum := linked(t)
		var purls []string
		for _, c := range bill.Components {
			purls = append(purls, c.PURL)
			if c.PURL == purl && c.property("go:sum") != sum {
				t.Errorf("%s has the checksum %q, want %s", purl, c.property("go:sum"), sum)
			}
		}
		if want := []string{"pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go"), purl}; !slices.Equal(purls, want) {
			t.Errorf("it is made of %v, want %v", purls, want)
		}
		if len(bill.Dependencies) != 1 || bill.Dependencies[0].Ref != main.BOMRef ||
			!slices.Equal(bill.Dependencies[0].DependsOn, purls) {
			t.Errorf("dependencies are %v", bill.Dependencies)
		}
	}
}

type resource struct {
	Name, URI string
	Digest    map[string]string
}

// checkProvenance checks the statement against SLSA's provenance, version 1.
func checkProvenance(t *testing.T, commit string, files map[string][]byte) {
	var s struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []resource
		Predicate     struct {
			BuildDefinition struct {
				BuildType                              string
				ExternalParameters, InternalParameters map[string]string
				ResolvedDependencies                   []resource
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	decode(t, files["provenance.intoto.json"], &s)
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("a %s with %s", s.Type, s.PredicateType)
	}
	about := map[string]string{}
	for _, subject := range s.Subject {
		about[subject.Name] = subject.Digest["sha256"]
	}
	want := images()
	for name, content := range files {
		if name != "SHA256SUMS" && name != "provenance.intoto.json" {
			want[name] = sumOf(content)
		}
	}
	if !maps.Equal(about, want) {
		t.Errorf("it is about %v, want %v", about, want)
	}
	build := s.Predicate.BuildDefinition
	if !strings.HasSuffix(build.BuildType, "/blob/"+commit+"/.ci/release") || build.ExternalParameters["version"] != "v0.2.0" || build.InternalParameters["go"] != runtime.Version() {
		t.Errorf("built by %s with %v, %v", build.BuildType, build.ExternalParameters, build.InternalParameters)
	}
	if id := s.Predicate.RunDetails.Builder.ID; id != builder {
		t.Errorf("built by %q", id)
	}
	purl, sum := linked(t)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err != nil {
		t.Fatal(err)
	}
	materials := map[string]map[string]string{}
	for _, d := range build.ResolvedDependencies {
		materials[d.URI] = d.Digest
	}
	if got := materials["git+https://github.com/underlay-ccm/underlay"]["gitCommit"]; got != commit {
		t.Errorf("of commit %q, want %s", got, commit)
	}
	if got := materials[purl]["dirHash"]; got != fmt.Sprintf("%x", raw) {
		t.Errorf("%s has the digest %q, want %x", purl, got, raw)
	}
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatalf("%v in %q", err, content)
	}
}

func sumOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }
