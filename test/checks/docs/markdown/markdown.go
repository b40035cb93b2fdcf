// Package markdown parses the documents of this tree as far as their tests need it: prose, fenced
// blocks, links, headlines, and the commands that readers copy.
//
// It must never decide whether its results are right: that is left to the tests.
package markdown

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// Document is a Markdown file.
type Document struct {
	Path   string // from the tree's root, with slashes
	Prose  string // without fenced blocks
	Blocks []Block
}

// Block is a fenced block: its language, and its content.
type Block struct {
	Language, Content string
	at                int // its position in the prose
}

// ReadTree reads every Markdown file below a folder, except those of test data
// and of hidden folders, by their paths.
func ReadTree(root string) (map[string]Document, error) {
	found := map[string]Document{}
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
		found[name] = Read(name, string(content))
		return err
	})
	return found, err
}

// Read separates blocks from prose. Fences may be indented, as within lists.
func Read(name, text string) Document {
	d := Document{Path: name}
	var open *Block
	fence, indent := "", ""
	var prose strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case open == nil && (strings.HasPrefix(bare, "```") || strings.HasPrefix(bare, "~~~")):
			fence = bare[:3]
			open = &Block{Language: strings.TrimSpace(strings.Trim(bare, "`~")), at: prose.Len()}
			indent = line[:strings.Index(line, fence)]
		case open != nil && strings.HasPrefix(bare, fence) && strings.Trim(bare, fence) == "":
			d.Blocks = append(d.Blocks, *open)
			open = nil
		case open != nil:
			open.Content += strings.TrimPrefix(line, indent)
		default:
			prose.WriteString(line)
		}
	}
	if open != nil {
		d.Blocks = append(d.Blocks, *open)
	}
	d.Prose = prose.String()
	return d
}

var (
	inlineCode = regexp.MustCompile("`([^`\n]*)`")
	link       = regexp.MustCompile(`\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)(?: "[^"]*")?\)`)
	attribute  = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]*)"`)
	elsewhere  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	headline   = regexp.MustCompile(`(?m)^#{1,6} +(.*?)(?: +#+)?\s*$`)
)

// InlineCode returns the texts between single backticks.
func (d Document) InlineCode() (found []string) {
	for _, m := range inlineCode.FindAllStringSubmatch(d.Prose, -1) {
		found = append(found, m[1])
	}
	return found
}

// Links are the targets of a document's links and pictures that are in this tree.
func (d Document) Links() (targets []string) {
	prose := inlineCode.ReplaceAllString(d.Prose, "")
	for _, pattern := range []*regexp.Regexp{link, attribute} {
		for _, m := range pattern.FindAllStringSubmatch(prose, -1) {
			if !elsewhere.MatchString(m[1]) {
				targets = append(targets, m[1])
			}
		}
	}
	return targets
}

// Anchors returns the fragments of a document's headlines, derived as GitHub does.
func (d Document) Anchors() map[string]bool {
	found := map[string]bool{}
	for _, m := range headline.FindAllStringSubmatch(d.Prose, -1) {
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
