package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// document is a Markdown file.
type document struct {
	path   string // from the module's root, with slashes
	prose  string // without fenced blocks
	blocks []block
}

// block is a fenced block: what its fence says it is, and what is in it.
type block struct {
	language, content string
}

// documents reads every Markdown file of the tree, except those of test data and
// of hidden folders.
func documents(t *testing.T) map[string]document {
	t.Helper()
	found := map[string]document{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && file != root
		if entry.IsDir() && (hidden || entry.Name() == "testdata" || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(file) != ".md" {
			return nil
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		name := filepath.ToSlash(relative)
		found[name] = read(name, string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// read parts blocks from prose. Fences may be indented, as within lists.
func read(name, text string) document {
	d := document{path: name}
	var open *block
	fence, indent := "", ""
	var prose strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case open == nil && (strings.HasPrefix(bare, "```") || strings.HasPrefix(bare, "~~~")):
			fence = bare[:3]
			open = &block{language: strings.TrimSpace(strings.Trim(bare, "`~"))}
			indent = line[:strings.Index(line, fence)]
		case open != nil && strings.HasPrefix(bare, fence) && strings.Trim(bare, fence) == "":
			d.blocks = append(d.blocks, *open)
			open = nil
		case open != nil:
			open.content += strings.TrimPrefix(line, indent)
		default:
			prose.WriteString(line)
		}
	}
	if open != nil {
		d.blocks = append(d.blocks, *open)
	}
	d.prose = prose.String()
	return d
}

var (
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	link       = regexp.MustCompile(`\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)(?: "[^"]*")?\)`)
	attribute  = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]*)"`)
	elsewhere  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	headline   = regexp.MustCompile(`(?m)^#{1,6} +(.*?)(?: +#+)?\s*$`)
)

// links are the targets of a document's links and pictures that are in this tree.
func (d document) links() (targets []string) {
	prose := inlineCode.ReplaceAllString(d.prose, "")
	for _, pattern := range []*regexp.Regexp{link, attribute} {
		for _, m := range pattern.FindAllStringSubmatch(prose, -1) {
			if !elsewhere.MatchString(m[1]) {
				targets = append(targets, m[1])
			}
		}
	}
	return targets
}

// anchors are what links to headlines of a document may say after the hash, made
// as GitHub makes them.
func (d document) anchors() map[string]bool {
	found := map[string]bool{}
	for _, m := range headline.FindAllStringSubmatch(d.prose, -1) {
		text := link.ReplaceAllString(strings.ReplaceAll(m[1], "`", ""), "")
		var slug strings.Builder
		for _, r := range strings.ToLower(strings.ReplaceAll(text, "[", "")) {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				slug.WriteRune(r)
			case r == ' ':
				slug.WriteRune('-')
			}
		}
		name := slug.String()
		for n := 1; found[name]; n++ {
			name = slug.String() + "-" + string(rune('0'+n))
		}
		found[name] = true
	}
	return found
}

// broken says what is wrong with a link; empty: nothing.
func broken(from document, target string, all map[string]document, exists func(string) bool) string {
	file, anchor, _ := strings.Cut(target, "#")
	to := from.path
	if file != "" {
		if strings.HasPrefix(file, "/") {
			return "begins with a slash, and leads elsewhere in each place that shows it"
		}
		to = path.Join(path.Dir(from.path), file)
		if !exists(to) {
			return "leads to " + to + ", which is not there"
		}
	}
	if anchor == "" {
		return ""
	}
	if d, is := all[to]; !is || !d.anchors()[anchor] {
		return to + " has no headline for #" + anchor
	}
	return ""
}

func inTree(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

func TestLinks(t *testing.T) {
	all := documents(t)
	checked := 0
	for _, d := range all {
		for _, target := range d.links() {
			checked++
			if problem := broken(d, target, all, inTree); problem != "" {
				t.Errorf("%s: the link %s %s", d.path, target, problem)
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d links were found, there are more", checked)
	}
}

// TestEveryPageIsReached: from the README, by links alone.
func TestEveryPageIsReached(t *testing.T) {
	all := documents(t)
	reached := map[string]bool{}
	queue := []string{"README.md"}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		d, is := all[name]
		if reached[name] || !is {
			continue
		}
		reached[name] = true
		for _, target := range d.links() {
			file, _, _ := strings.Cut(target, "#")
			to := path.Join(path.Dir(name), file)
			// A folder shows its README.
			queue = append(queue, to, path.Join(to, "README.md"))
		}
	}
	for name := range all {
		if !reached[name] && strings.HasPrefix(name, "docs/") {
			t.Errorf("no way leads from README.md to %s: link it from a page on the same subject", name)
		}
	}
}

// TestLinksAreJudged shows what is found and what isn't.
func TestLinksAreJudged(t *testing.T) {
	page := read("docs/a.md", "# A (page) of `code`\n\n[good](b.md#two-words) [here](#a-page-of-code) [far](https://example.org/x)\n"+
		"[gone](c.md) [no headline](b.md#three) ![picture](/d.svg) `[code](no.md)`\n<img src=\"e.svg\">\n\n```md\n[block](no.md)\n```\n")
	all := map[string]document{"docs/a.md": page, "docs/b.md": read("docs/b.md", "## Two words\n")}
	exists := func(name string) bool { return slices.Contains([]string{"docs/a.md", "docs/b.md"}, name) }
	var wrong []string
	for _, target := range page.links() {
		if broken(page, target, all, exists) != "" {
			wrong = append(wrong, target)
		}
	}
	if got := strings.Join(wrong, " "); got != "c.md b.md#three /d.svg e.svg" {
		t.Errorf("broken: %s", got)
	}
	if len(page.links()) != 6 || len(page.blocks) != 1 || page.blocks[0].language != "md" {
		t.Errorf("links %q, blocks %q", page.links(), page.blocks)
	}
}
