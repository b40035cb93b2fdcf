// Package dockerfile parses Underlay's Dockerfile, as much of the language as that uses, and runs
// its lines that compile, where no container engine exists.
package dockerfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Instruction is one line, including its continuations.
type Instruction struct{ Name, Rest string }

// Stage contains the instructions between two FROMs.
type Stage struct {
	Base, Name   string
	Instructions []Instruction
}

// Copy is a COPY: files of another stage, or of the build's context if From is empty.
type Copy struct {
	From    string
	Sources []string
	To      string
}

// Read reads the stages of a Dockerfile by their names.
func Read(path string) (map[string]Stage, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	stages := map[string]Stage{}
	var last string
	joined := strings.ReplaceAll(withoutComments(string(content)), "\\\n", " ")
	for line := range strings.Lines(joined) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "":
		case name == "FROM":
			words := withoutFlags(strings.Fields(rest))
			if len(words) != 3 || words[1] != "AS" {
				return nil, fmt.Errorf("FROM %s: want a base and a name", rest)
			}
			last = words[2]
			stages[last] = Stage{Base: words[0], Name: last}
		case last == "":
			return nil, fmt.Errorf("%s stands before the first FROM", line)
		default:
			s := stages[last]
			s.Instructions = append(s.Instructions, Instruction{name, strings.TrimSpace(rest)})
			stages[last] = s
		}
	}
	return stages, nil
}

func withoutComments(content string) string {
	var kept strings.Builder
	for line := range strings.Lines(content) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func withoutFlags(words []string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") })
}

// All returns the arguments of each instruction with a name.
func (s Stage) All(name string) []string {
	var found []string
	for _, i := range s.Instructions {
		if i.Name == name {
			found = append(found, i.Rest)
		}
	}
	return found
}

// Last returns the arguments of the last instruction with a name, which applies; empty if there is
// none.
func (s Stage) Last(name string) string {
	all := s.All(name)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// Environment is the environment of the build lines beside the machine's own: ENV and the defaults
// of ARG, empty if there is none.
func (s Stage) Environment() ([]string, error) {
	var env []string
	for _, line := range s.All("ENV") {
		for _, pair := range strings.Fields(line) {
			if !strings.Contains(pair, "=") {
				return nil, fmt.Errorf("ENV %s: want the form NAME=value", line)
			}
			env = append(env, pair)
		}
	}
	for _, arg := range s.All("ARG") {
		name, value, _ := strings.Cut(arg, "=")
		env = append(env, name+"="+value)
	}
	return env, nil
}

// BuildLines are the shell lines that compile a program.
func (s Stage) BuildLines() []string {
	return slices.DeleteFunc(s.All("RUN"), func(line string) bool { return !strings.Contains(line, "go build") })
}

// Installed are the packages that the stage installs. Any other RUN is an error, as is one that
// installs packages which it doesn't name.
func (s Stage) Installed() ([]string, error) {
	var installed []string
	for _, line := range s.All("RUN") {
		for command := range strings.SplitSeq(line, "&&") {
			words := strings.Fields(command)
			switch {
			case slices.Equal(words, []string{"apt-get", "update"}), slices.Equal(words, []string{"rm", "-rf", "/var/lib/apt/lists/*"}):
			case len(words) > 2 && words[0] == "apt-get" && words[1] == "install" && slices.Contains(words, "--no-install-recommends"):
				installed = append(installed, slices.DeleteFunc(words[2:], func(w string) bool { return strings.HasPrefix(w, "-") })...)
			default:
				return nil, fmt.Errorf("RUN does %q", strings.TrimSpace(command))
			}
		}
	}
	return installed, nil
}

// Copies are the stage's COPY lines.
func (s Stage) Copies() ([]Copy, error) {
	var copies []Copy
	for _, line := range s.All("COPY") {
		words := strings.Fields(line)
		var c Copy
		if from, ok := strings.CutPrefix(words[0], "--from="); ok {
			c.From, words = from, words[1:]
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("COPY %s: want sources and a target", line)
		}
		c.Sources, c.To = words[:len(words)-1], words[len(words)-1]
		copies = append(copies, c)
	}
	return copies, nil
}

// Entrypoint is the stage's ENTRYPOINT, which must not need a shell.
func (s Stage) Entrypoint() ([]string, error) {
	var entrypoint []string
	if err := json.Unmarshal([]byte(s.Last("ENTRYPOINT")), &entrypoint); err != nil || len(entrypoint) == 0 {
		return nil, errors.Join(fmt.Errorf("%s: ENTRYPOINT %q is no list of words", s.Name, s.Last("ENTRYPOINT")), err)
	}
	return entrypoint, nil
}
