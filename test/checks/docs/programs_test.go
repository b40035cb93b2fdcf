package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// flagRow is one flag as a program's help shows it.
type flagRow struct{ name, kind, fallback, meaning string }

// section is a group of flags with its title; the title may be empty.
type section struct {
	title string
	flags []flagRow
}

// help is what a program says about itself.
type help struct {
	sections    []section
	subcommands [][2]string // and what each is for
}

var (
	flagLine    = regexp.MustCompile(`^ {2,}(?:-(\w), )? *--([a-z][a-z0-9-]*)(?:\[=[^\]]*\])?(?: (\S+(?:\[=[^\]]*\])?))? {2,}(\S.*)$`)
	bareFlag    = regexp.MustCompile(`^ {2,}(?:-\w, )? *--[a-z]`)
	defaultText = regexp.MustCompile(` *\(default (.*)\)$`)
	listed      = regexp.MustCompile(`^ {2}([a-z][a-z0-9-]*) +(\S.*)`)
	// manyOptions begins a list that is longer than it is useful here.
	manyOptions = regexp.MustCompile(`\. Options are:.*`)
)

// readHelp takes a help text apart: those of cobra, of Kubernetes' component
// library and of pflag look alike. What it can't read is returned too.
func readHelp(text string) (h help, unread []string) {
	title := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		bare := strings.TrimSpace(line)
		if line != "" && line[0] != ' ' {
			title = strings.TrimSuffix(line, ":")
			if !strings.HasSuffix(line, ":") {
				title = ""
			}
			continue
		}
		if title == "Available Commands" {
			if m := listed.FindStringSubmatch(line); m != nil && m[1] != "completion" && m[1] != "help" {
				h.subcommands = append(h.subcommands, [2]string{m[1], m[2]})
			}
			continue
		}
		if !strings.HasSuffix(strings.ToLower(title), "flags") {
			continue
		}
		m := flagLine.FindStringSubmatch(line)
		switch {
		case m != nil:
			h.add(title, flagRow{name: "--" + m[2], kind: m[3], meaning: m[4]})
		case bareFlag.MatchString(line):
			unread = append(unread, line)
		case bare != "":
			h.extend(bare)
		}
	}
	for i := range h.sections {
		for j := range h.sections[i].flags {
			h.sections[i].flags[j].finish()
		}
	}
	return h, unread
}

func (h *help) add(title string, f flagRow) {
	if n := len(h.sections); n == 0 || h.sections[n-1].title != title {
		h.sections = append(h.sections, section{title: title})
	}
	last := &h.sections[len(h.sections)-1]
	last.flags = append(last.flags, f)
}

// extend adds a line to the meaning of the last flag.
func (h *help) extend(line string) {
	if n := len(h.sections); n > 0 {
		flags := h.sections[n-1].flags
		flags[len(flags)-1].meaning += " " + line
	}
}

func (f *flagRow) finish() {
	if m := defaultText.FindStringSubmatch(f.meaning); m != nil {
		f.fallback = m[1]
		f.meaning = f.meaning[:len(f.meaning)-len(m[0])]
	}
	f.meaning = manyOptions.ReplaceAllString(f.meaning, ". `--help` lists them.")
}

// programs are the folders below cmd.
func programs(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if main, _ := filepath.Glob(filepath.Join(root, "cmd", e.Name(), "*.go")); len(main) > 0 {
			names = append(names, e.Name())
		}
	}
	return names
}

// helpOf runs a program and one of its subcommands with --help. Nothing of this
// machine's environment reaches it.
func helpOf(t *testing.T, program string, subcommand ...string) help {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append(subcommand, "--help")...)
	cmd.Env = []string{"HOME=/home/you"}
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &diagnostics)
	}
	h, unread := readHelp(out.String())
	for _, line := range unread {
		t.Errorf("%s: this line of the help is not understood: %s", cmd, line)
	}
	return h
}

func TestReadHelp(t *testing.T) {
	h, unread := readHelp(`A program that does things:

  program --seed file

Usage:
  program [command]

Available Commands:
  completion  Generate the autocompletion script
  run         Do things

Generic flags:

      --a-list strings             A list. One of:
                                   all of them (default [*])
  -v, --v Level                    number for the log level
      --version version[=true]     prints the version
      --feature-gates mapBool      Sets features. Options are:
                                   A=true|false

Flags:
      --odd
`)
	want := []flagRow{
		{"--a-list", "strings", "[*]", "A list. One of: all of them"},
		{"--v", "Level", "", "number for the log level"},
		{"--version", "version[=true]", "", "prints the version"},
		{"--feature-gates", "mapBool", "", "Sets features. `--help` lists them."},
	}
	if len(h.sections) != 1 || h.sections[0].title != "Generic flags" || !slices.Equal(h.sections[0].flags, want) {
		t.Errorf("read %+v", h.sections)
	}
	if !slices.Equal(h.subcommands, [][2]string{{"run", "Do things"}}) || len(unread) != 1 {
		t.Errorf("subcommands %q, not understood %q", h.subcommands, unread)
	}
}
