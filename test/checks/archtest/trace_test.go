package archtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Templates call methods by name, so a program with one of them keeps every method of every type.
// Of what our programs import, gRPC's pages of traces bring templates along, unless a build tag
// leaves them out.
func TestProgramsAreLinkedWithoutTraces(t *testing.T) {
	const tag = "-tags grpcnotrace"
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, append(strings.Fields(tag), "./cmd/...")...)...)
	list.Dir = module
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if path == "golang.org/x/net/trace" {
			t.Errorf("a program has %s, 30 MB of methods that nobody calls", path)
		}
	}
	for file, line := range map[string]string{
		"Dockerfile": "go build -trimpath " + tag + " -o /out/",
		"Makefile":   "TAGS := " + tag,
	} {
		content, err := os.ReadFile(module + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), line) {
			t.Errorf("%s builds programs without %s", file, tag)
		}
	}
}
