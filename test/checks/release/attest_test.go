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

// dependency is a module that this tree needs, as lines of go.mod and go.sum.
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

// TestReleaseHasBillsOfMaterials reads them as the tools do that look for vulnerable modules.
func TestReleaseHasBillsOfMaterials(t *testing.T) {
	_, files := released(t)
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
		if len(bill.Dependencies) != 1 || bill.Dependencies[0].Ref != main.BOMRef || !slices.Equal(bill.Dependencies[0].DependsOn, purls) {
			t.Errorf("dependencies are %v", bill.Dependencies)
		}
	}
}

type resource struct {
	Name, URI string
	Digest    map[string]string
}

// TestReleaseSaysWhereItComesFrom holds the statement to SLSA's provenance, version 1.
func TestReleaseSaysWhereItComesFrom(t *testing.T) {
	r, files := released(t)
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
	want := map[string]string{}
	for name, content := range files {
		if name != "SHA256SUMS" && name != "provenance.intoto.json" {
			want[name] = sumOf(content)
		}
	}
	if !maps.Equal(about, want) {
		t.Errorf("it is about %v, want %v", about, want)
	}
	commit, build := r.head(t), s.Predicate.BuildDefinition
	if !strings.HasSuffix(build.BuildType, "/blob/"+commit+"/.ci/release") || build.ExternalParameters["version"] != "v0.2.0" || build.InternalParameters["go"] != runtime.Version() {
		t.Errorf("built by %s with %v, %v", build.BuildType, build.ExternalParameters, build.InternalParameters)
	}
	if s.Predicate.RunDetails.Builder.ID == "" {
		t.Error("it doesn't say who built it")
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

// TestBuilderIsWhoBuilds: elsewhere than on the forge the script itself is all that can be named.
func TestBuilderIsWhoBuilds(t *testing.T) {
	r := newRepository(t)
	r.git(t, "tag", "v0.2.0")
	t.Setenv("RELEASE_BUILDER", "https://forge.example/a-workflow")
	if output, err := r.release(t); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if got := string(r.dist(t)["provenance.intoto.json"]); !strings.Contains(got, `"id": "https://forge.example/a-workflow"`) {
		t.Errorf("the statement is\n%s", got)
	}
}

// TestReleaseNamesItsImages gives the release the images that were pushed: the chart installs them
// by digest, and the statement is about them too.
func TestReleaseNamesItsImages(t *testing.T) {
	r := newRepository(t)
	values, err := os.ReadFile(underlay + "/deploy/chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, "deploy/chart/values.yaml", string(values))
	r.commit(t)
	r.git(t, "tag", "v0.2.0")
	ccm, agent := strings.Repeat("c", 64), strings.Repeat("a", 64)
	list := t.TempDir() + "/images"
	lines := "registry.example/underlay-ccm sha256:" + ccm + "\nregistry.example/underlay-agent sha256:" + agent + "\n"
	if err := os.WriteFile(list, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := r.release(t, "-i", list); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	files := r.dist(t)
	chart := string(unpacked(t, files["underlay-0.2.0.tgz"])["underlay/values.yaml"])
	for _, line := range []string{"registry: registry.example", "ccmDigest: sha256:" + ccm, "agentDigest: sha256:" + agent} {
		if !strings.Contains(chart, "\n  "+line+"\n") {
			t.Errorf("values.yaml has no line %q", line)
		}
	}
	for _, name := range []string{"registry.example/underlay-ccm", "registry.example/underlay-agent"} {
		if !strings.Contains(string(files["provenance.intoto.json"]), `"name": "`+name+`"`) {
			t.Errorf("the statement is not about %s", name)
		}
	}
	if err := os.WriteFile(list, []byte("registry.example/underlay-ccm v0.2.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := r.release(t, "-i", list); err == nil || !strings.Contains(output, "sha256:") {
		t.Errorf("an image without a digest: %v: %s", err, output)
	}
}

// released is a repository with the files of its release.
func released(t *testing.T) (repository, map[string][]byte) {
	t.Helper()
	r := newRepository(t)
	r.git(t, "tag", "v0.2.0")
	if output, err := r.release(t); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return r, r.dist(t)
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatalf("%v in %q", err, content)
	}
}

func sumOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }
