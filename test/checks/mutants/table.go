package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
)

// A mutant is one guard of the code, broken.
type mutant struct {
	name string
	// file contains the guard, old is its text, which occurs once, and new replaces it.
	file, old, new string
	// why is the harm that the guard prevents.
	why string
	// tests is the package whose tests must fail, run selects them, args are its arguments.
	tests, run string
	args       []string
}

// apply returns the source with the guard broken.
func (m mutant) apply(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s has the text of mutant %q %d times, want once: correct test/checks/mutants/table.txt\n%s", m.file, m.name, n, m.old)
	}
	return bytes.Replace(source, []byte(m.old), []byte(m.new), 1), nil
}

// table has a paragraph for each mutant: lines with a key, then the old text with a minus before
// each line, and the new one with a plus. A text ends with a newline if its last line is empty.
//
//go:embed table.txt
var table string

// mutants parses the table.
func mutants() []mutant {
	var all []mutant
	for paragraph := range strings.SplitSeq(table, "\n\n") {
		var m mutant
		var removed, added []string
		for line := range strings.SplitSeq(strings.Trim(paragraph, "\n"), "\n") {
			key, rest, _ := strings.Cut(line, ": ")
			switch {
			case strings.HasPrefix(line, "-"):
				removed = append(removed, line[1:])
			case strings.HasPrefix(line, "+"):
				added = append(added, line[1:])
			case key == "mutant":
				m.name = rest
			case key == "why":
				m.why = rest
			case key == "file":
				m.file = rest
			case key == "test":
				words := append(strings.Fields(rest), "", "")
				m.tests, m.run, m.args = words[0], words[1], words[2:len(words)-2]
			}
		}
		if m.old, m.new = strings.Join(removed, "\n"), strings.Join(added, "\n"); m.name != "" || m.old != "" {
			all = append(all, m)
		}
	}
	return all
}
