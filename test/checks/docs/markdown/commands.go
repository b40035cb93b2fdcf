package markdown

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// shells are the languages of blocks with commands.
var shells = []string{"sh", "bash", "shell", "console"}

// program matches the beginning of a command, also in a block without a language.
var program = regexp.MustCompile(`^(?:[a-z]+=\$\(|(?:bin/)?(?:kubectl|kubeadm|helm|hcloud|docker|ssh|ip|nft|rm|curl|make|go|underlay[a-z-]*|hcloud-sim)(?: |$))`)

// inlineCommand is a command within prose: of these programs only, and not if they are only
// mentioned.
var inlineCommand = regexp.MustCompile(`^(?:kubectl \S+ \S|(?:bin/)?(?:underlayctl|hcloud-sim|curl) \S)`)

// CommandLines returns a block's commands, none if it has other content: continued lines are one,
// and in a block that also shows output, only lines with a prompt count.
func (b Block) CommandLines() (lines []string) {
	if !slices.Contains(shells, b.Language) && (b.Language != "" || !program.MatchString(b.Content)) {
		return nil
	}
	for line := range strings.Lines(strings.ReplaceAll(b.Content, "\\\n", " ")) {
		line = strings.TrimRight(line, "\n")
		command, prompted := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case prompted:
			lines = append(lines, command)
		case b.Language != "console":
			lines = append(lines, line)
		}
	}
	return lines
}

// Commands returns the commands of a document in reading order, a list of lines for each place: the
// lines of a block may belong together.
func (d Document) Commands() (places [][]string) {
	blocks := d.Blocks
	before := func(at int) {
		for len(blocks) > 0 && blocks[0].at <= at {
			if lines := blocks[0].CommandLines(); len(lines) > 0 {
				places = append(places, lines)
			}
			blocks = blocks[1:]
		}
	}
	for _, m := range inlineCode.FindAllStringSubmatchIndex(d.Prose, -1) {
		before(m[0])
		if code := d.Prose[m[2]:m[3]]; inlineCommand.MatchString(code) {
			places = append(places, []string{code})
		}
	}
	before(len(d.Prose))
	return places
}

// Whole joins lines to commands: a line that the shell parses as incomplete is joined with the next
// one.
func Whole(ctx context.Context, lines []string) (commands []string, err error) {
	command := ""
	for _, line := range lines {
		if command += line; strings.TrimSpace(command) == "" {
			command = ""
			continue
		}
		check := exec.CommandContext(ctx, "bash", "-n", "-c", command)
		if problem, failed := check.CombinedOutput(); failed != nil {
			if err = fmt.Errorf("the shell can't read\n%s\n%s", command, problem); ctx.Err() != nil {
				return nil, err
			}
			command += "\n"
			continue
		}
		commands, command, err = append(commands, strings.TrimSpace(command)), "", nil
	}
	return commands, err
}
