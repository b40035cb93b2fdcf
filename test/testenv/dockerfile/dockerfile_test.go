package dockerfile

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestIgnore(t *testing.T) {
	rules := ignoreRules("# all but code\n*\n!go.mod\n!cmd\n**/*_test.go\n**/testdata\n")
	for name, want := range map[string]bool{
		"go.mod": false, "cmd": false, "cmd/a/main.go": false,
		".git": true, "docs": true, "docs/cmd": true,
		"cmd/a/main_test.go": true, "cmd/a/testdata": true, "cmd/a/testdata/b": true,
	} {
		if got := rules.ignored(name); got != want {
			t.Errorf("%s is ignored: %t, want %t", name, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Dockerfile")
	content := `# A comment
FROM --platform=$BUILDPLATFORM golang:1@sha256:0 AS build
ENV A=1 B=2
ARG C=3
RUN go build \
    # in between
    -o /out/ ./cmd/...

FROM debian:12-slim AS image
RUN apt-get update && apt-get install --yes --no-install-recommends nftables
COPY --from=build /out/a /out/b /bin/
USER 0:0
ENTRYPOINT ["/bin/a", "run"]
`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	stages, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	build, image := stages["build"], stages["image"]
	env, errEnv := build.Environment()
	installed, errInstalled := image.Installed()
	copies, errCopies := image.Copies()
	entrypoint, errEntrypoint := image.Entrypoint()
	for what, got := range map[string][3]any{
		"base":        {build.Base, "golang:1@sha256:0"},
		"environment": {env, []string{"A=1", "B=2", "C=3"}, errEnv},
		"installed":   {installed, []string{"nftables"}, errInstalled},
		"copies":      {copies, []Copy{{"build", []string{"/out/a", "/out/b"}, "/bin/"}}, errCopies},
		"entrypoint":  {entrypoint, []string{"/bin/a", "run"}, errEntrypoint},
		"user":        {image.Last("USER"), "0:0"},
		"build lines": {len(build.BuildLines()), 1},
	} {
		if !reflect.DeepEqual(got[0], got[1]) || got[2] != nil {
			t.Errorf("%s: %v (%v), want %v", what, got[0], got[2], got[1])
		}
	}
}
