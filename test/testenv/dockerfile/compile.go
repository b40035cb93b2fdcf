package dockerfile

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Compile runs a stage's build lines over the files of a source tree that .dockerignore includes,
// if the stage copies them. The folder out replaces /out/. The result is for the kind of machine
// that builds it, with the default versions of the ARGs.
func (s Stage) Compile(ctx context.Context, tree, out string) error {
	source, err := os.MkdirTemp("", "underlay-context-")
	if err != nil {
		return fmt.Errorf("stage %s: %w", s.Name, err)
	}
	defer os.RemoveAll(source)
	if slices.Contains(s.All("COPY"), ". .") {
		if err := copyContext(tree, source); err != nil {
			return fmt.Errorf("stage %s: %w", s.Name, err)
		}
	}
	env, err := s.Environment()
	if err != nil {
		return fmt.Errorf("stage %s: %w", s.Name, err)
	}
	lines := s.BuildLines()
	if len(lines) == 0 {
		return fmt.Errorf("stage %s builds nothing", s.Name)
	}
	for _, line := range lines {
		if strings.Count(line, "-o /out/ ") != 1 {
			return fmt.Errorf("RUN %s\ndoesn't write to /out/, from where images take their programs", line)
		}
		cmd := exec.CommandContext(ctx, "sh", "-ec", strings.Replace(line, "-o /out/ ", "-o "+out+"/ ", 1))
		cmd.Dir = source
		cmd.Env = append(os.Environ(), env...)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("RUN %s\n%w\n%s", line, err, output)
		}
	}
	return nil
}

// copyContext copies the files of the build context.
func copyContext(from, to string) error {
	content, err := os.ReadFile(filepath.Join(from, ".dockerignore"))
	if err != nil {
		return err
	}
	rules := ignoreRules(string(content))
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, file)
		if err != nil || name == "." || rules.ignored(filepath.ToSlash(name)) {
			if err == nil && name != "." && entry.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		target := filepath.Join(to, name)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}

// ignoreRules are the lines of a .dockerignore, of which the last match decides.
func ignoreRules(content string) ignore {
	var rules ignore
	for line := range strings.Lines(content) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			rules = append(rules, line)
		}
	}
	return rules
}

type ignore []string

// ignored evaluates the kinds of rules that Underlay's .dockerignore uses: names at the root, and
// **/ for names anywhere. A rule for a folder applies to all files in it.
func (rules ignore) ignored(name string) bool {
	result := false
	for _, rule := range rules {
		pattern, keep := strings.CutPrefix(rule, "!")
		matches := false
		parts := strings.Split(name, "/")
		if base, anywhere := strings.CutPrefix(pattern, "**/"); anywhere {
			matches = slices.ContainsFunc(parts, func(part string) bool {
				ok, _ := path.Match(base, part)
				return ok
			})
		} else {
			matches, _ = path.Match(pattern, parts[0])
		}
		if matches {
			result = !keep
		}
	}
	return result
}
