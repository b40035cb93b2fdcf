package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

const (
	page   = "docs/reference/performance.md"
	folder = "docs/reference/performance"
	readme = "README.md"
	// none stands for a missing record.
	none = "—"
)

// titles are those of the page's sections, in its order. A subject without a title follows them
// under its folder's name.
func titles() [][2]string {
	return [][2]string{
		{"ipam", "Node IPAM"},
		{"scale", "A large cluster"},
		{"routes", "Routes of a cloud network"},
		{"lb", "Load balancers"},
		{"agent", "The node agent's routes"},
		{"address", "Addresses on one segment"},
		{"policy", "NetworkPolicies"},
	}
}

func order(subject string) int {
	if i := slices.IndexFunc(titles(), func(t [2]string) bool { return t[0] == subject }); i >= 0 {
		return i
	}
	return len(titles())
}

func title(subject string) string {
	if i := order(subject); i < len(titles()) {
		return titles()[i][1]
	}
	return subject
}

// documents are the files that are generated from the records, by their paths.
func documents(tree string) (map[string][]byte, error) {
	all, err := sections(tree)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{page: []byte(markdown(all))}
	drawn, err := plots(all)
	if err != nil {
		return nil, err
	}
	for name, svg := range drawn {
		files[filepath.Join(folder, name)] = svg
	}
	before, err := os.ReadFile(filepath.Join(tree, readme))
	if err != nil {
		return nil, err
	}
	after, err := measured(string(before), all)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", readme, err)
	}
	files[readme] = []byte(after)
	return files, nil
}

// writeFiles writes changed files, and removes plots that are no longer in the list of files.
func writeFiles(tree string, files map[string][]byte) error {
	if _, whole := files[page]; whole {
		for _, name := range stale(tree, files) {
			if err := os.Remove(filepath.Join(tree, name)); err != nil {
				return err
			}
		}
	}
	for name, content := range files {
		path := filepath.Join(tree, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// stale are plots without a record.
func stale(tree string, files map[string][]byte) (out []string) {
	drawn, _ := filepath.Glob(filepath.Join(tree, folder, "*.svg")) // the pattern is right
	for _, path := range drawn {
		name := filepath.Join(folder, filepath.Base(path))
		if _, wanted := files[name]; !wanted {
			out = append(out, name)
		}
	}
	return out
}

const intro = `<!-- Generated from docs/reference/performance/*.jsonl by "make generate". Do not edit. -->

# Performance

The resources and speed of Underlay, compared with the programs that it replaces. ` + "`make bench-all`" + ` repeats all measurements, one subject after the other, and writes this page; those below took %s. ` + "`make bench-all ONLY=ipam,agent`" + ` repeats some, and keeps the others' figures. Every round is stored in [a file for each subject](performance).

A cell is the median of all rounds, with the smallest, the largest and the number of rounds in parentheses; a figure without them is of one round. A dash: not measured.
`

// markdown is the page's text.
func markdown(all []section) string {
	var b strings.Builder
	seconds := 0
	for _, s := range all {
		seconds += s.machine.Seconds
	}
	fmt.Fprintf(&b, intro, duration(seconds))
	for _, s := range all {
		s.write(&b)
	}
	return b.String()
}

func (s *section) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n", title(s.subject))
	if about := s.notesAbout("", ""); len(about) > 0 {
		fmt.Fprintf(b, "\n%s\n", strings.Join(about, " "))
	}
	fmt.Fprintf(b, "\n%s\n", s.conditions())
	if len(s.rows) > 0 {
		fmt.Fprintln(b)
		s.table(b)
	}
	if meanings := s.meanings(); len(meanings) > 0 {
		fmt.Fprintf(b, "\n%s", strings.Join(meanings, ""))
	}
	for _, p := range s.plots {
		fmt.Fprintf(b, "\n![%s](performance/%s.svg)\n", p.title, slug(p.title))
	}
}

// conditions describe the machine, the date and the versions of the measurement.
func (s *section) conditions() string {
	m := s.machine
	versions := []string{"Underlay " + m.Underlay}
	for _, v := range s.versions {
		versions = append(versions, v.Program+" "+v.Version)
	}
	versions = append(versions, m.Go)
	return fmt.Sprintf("Measured on %s, in %s: %s, %d cores, %d GiB of memory, Linux %s. %s.",
		m.Date, duration(m.Seconds), m.CPU, m.Cores, m.MemoryGB, m.Kernel, strings.Join(versions, ", "))
}

func duration(seconds int) string {
	if seconds < 100 {
		return fmt.Sprintf("%d s", seconds)
	}
	return fmt.Sprintf("%d min", (seconds+30)/60)
}

func (s *section) table(b *strings.Builder) {
	line := func(cells ...string) {
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	head := []string{"scenario", "figure"}
	for _, contender := range s.contenders {
		head = append(head, shown(contender))
	}
	line(head...)
	b.WriteString(strings.Repeat("|---", 2) + strings.Repeat("|---:", len(s.contenders)) + "|\n")
	var sources []string
	last := ""
	for _, r := range s.rows {
		scenario, what := r.scenario, r.quantity
		if scenario == last {
			scenario = ""
		}
		last = r.scenario
		if r.unit != "" {
			what += ", " + r.unit
		}
		cells := []string{scenario, what}
		for _, contender := range s.contenders {
			cells = append(cells, r.cells[contender].text(&sources))
		}
		line(cells...)
	}
	for i, source := range sources {
		fmt.Fprintf(b, "\n<sup>%d</sup> %s.\n", i+1, source)
	}
}

// shown is the displayed name of a contender.
func shown(contender string) string {
	if contender == ours {
		return "Underlay"
	}
	return contender
}

// text is the text of a cell. A source's number is its position in the list, to which a new one is
// added.
func (c cell) text(sources *[]string) string {
	if len(c.values) == 0 {
		return none
	}
	text := number(c.median())
	switch least, most := number(c.values[0]), number(c.values[len(c.values)-1]); {
	case len(c.values) > 1 && least == most:
		text += fmt.Sprintf(" (%d alike)", len(c.values))
	case len(c.values) > 1:
		text += fmt.Sprintf(" (%s–%s, %d)", least, most, len(c.values))
	}
	if c.source != "" {
		if !slices.Contains(*sources, c.source) {
			*sources = append(*sources, c.source)
		}
		text += fmt.Sprintf(" <sup>%d</sup>", slices.Index(*sources, c.source)+1)
	}
	return text
}

// notesAbout are the notes about a quantity of a scenario.
func (s *section) notesAbout(scenario, quantity string) (out []string) {
	for _, n := range s.notes {
		if n.Scenario == scenario && n.Quantity == quantity {
			out = append(out, n.Text)
		}
	}
	return out
}

// meanings are a line for each note except those about the subject.
func (s *section) meanings() (out []string) {
	for _, n := range s.notes {
		if about := name(n); about != "" {
			out = append(out, fmt.Sprintf("- *%s*: %s\n", about, n.Text))
		}
	}
	return out
}

func name(n results.Note) string {
	if n.Scenario != "" && n.Quantity != "" {
		return n.Scenario + ", " + n.Quantity
	}
	return n.Scenario + n.Quantity
}
