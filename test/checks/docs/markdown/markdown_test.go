package markdown

import (
	"fmt"
	"testing"
)

func TestCommands(t *testing.T) {
	d := Read("a.md", "Run `kubectl get nodes`, or `kubectl describe` it with `underlayctl`.\n\n"+
		"```sh\nkubectl get pods \\\n  -o wide\nfor a in b; do\n  echo $a\ndone\n```\n\n"+
		"1. Then `kubectl delete node NODE`:\n\n   ```\n   make test\n   ```\n\n"+
		"```console\n$ curl -s there\nan answer\n$ underlayctl nodes\n```\n\n"+
		"```\nuid=1\n```\n\n```yaml\nmake: true\n```\n\n```\nmakeshift\n```\n\n```\nunderlayctl nodes\n```\n\nAnd `underlayctl doctor`.\n")
	want := `[["kubectl get nodes"]` +
		` ["kubectl get pods    -o wide" "for a in b; do" "  echo $a" "done"]` +
		` ["kubectl delete node NODE"] ["make test"] ["curl -s there" "underlayctl nodes"] ["underlayctl nodes"] ["underlayctl doctor"]]`
	if got := fmt.Sprintf("%q", d.Commands()); got != want {
		t.Errorf("commands %s\nwant     %s", got, want)
	}
}

func TestRead(t *testing.T) {
	d := Read("docs/a.md", "# A (page) of `code`\n\n[good](b.md#two) [far](https://example.org/x) `[code](no.md)`\n"+
		"<img src=\"e.svg\">\n\n  ```md\n  [block](no.md)\n    deep\n  ```\n## A page of code\n~~~\nopen\n")
	if got := fmt.Sprintf("%q", d.Links()); got != `["b.md#two" "e.svg"]` {
		t.Errorf("links %s", got)
	}
	if got := d.Anchors(); len(got) != 2 || !got["a-page-of-code"] || !got["a-page-of-code-1"] {
		t.Errorf("anchors %v", got)
	}
	if got := fmt.Sprintf("%q", d.InlineCode()); got != `["code" "[code](no.md)"]` {
		t.Errorf("inline code %s", got)
	}
	if len(d.Blocks) != 2 || d.Blocks[0].Language != "md" || d.Blocks[0].Content != "[block](no.md)\n  deep\n" || d.Blocks[1].Content != "open\n" {
		t.Errorf("blocks %+v", d.Blocks)
	}
}

func TestWhole(t *testing.T) {
	got, err := Whole(t.Context(), []string{"for a in b; do", "  echo 'a", "b'", "done", "", "  a |", "b # c", "d"})
	if want := `["for a in b; do\n  echo 'a\nb'\ndone" "a |\nb # c" "d"]`; err != nil || fmt.Sprintf("%q", got) != want {
		t.Errorf("%q, %v, want %s", got, err, want)
	}
	if _, err := Whole(t.Context(), []string{"a", "b | (c"}); err == nil {
		t.Error("half a command is taken for one")
	}
}
