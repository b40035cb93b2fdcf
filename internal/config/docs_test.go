package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const docsPath = "../../docs"

// yamlBlocks returns the fenced blocks of a Markdown text that are marked as YAML, also those
// within lists, without the indentation of their fences.
func yamlBlocks(text string) []string {
	var blocks []string
	var block *strings.Builder
	indent := ""
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case block == nil && bare == "```yaml":
			block, indent = &strings.Builder{}, line[:strings.Index(line, "`")]
		case block != nil && bare == "```":
			blocks, block = append(blocks, block.String()), nil
		case block != nil:
			block.WriteString(strings.TrimPrefix(line, indent))
		}
	}
	return blocks
}

// Users copy from documents, so every file in them has to be valid, with its pools, or with
// --cluster-cidr if it has none.
func TestFilesInDocuments(t *testing.T) {
	files := 0
	err := filepath.WalkDir(docsPath, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, block := range yamlBlocks(string(text)) {
			if !strings.Contains(block, "kind: CloudConfig") {
				if strings.Contains(block, "pools:") {
					t.Errorf("%s: a part of a file can't be copied as it is; write it whole:\n%s", path, block)
				}
				continue
			}
			files++
			flags := ipv4Only()
			if strings.Contains(block, "\npools:") { // those of podCIDRs
				flags["--cluster-cidr"] = ""
			}
			config, _, err := Load(flags, []byte(block), func(name string) string { return env(nil)[name] },
				func(string) ([]byte, error) { return []byte(tokenText), nil })
			if err != nil {
				t.Errorf("%s:\n%s\n%v", path, block, err)
			} else if err := makesLedger(config); err != nil {
				t.Errorf("%s:\n%s\n%v", path, block, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 6 {
		t.Errorf("%d files found in %s, there are more", files, docsPath)
	}
}
