package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// The longest files that fit on a few screens. Tests may be longer: tables are read by the row.
const (
	maxLines     = 400
	maxTestLines = 500
	maxColumns   = 100 // a tab is one
)

// longFiles may be longer, each for its reason.
func longFiles() map[string]string {
	return map[string]string{}
}

// File is one Go file; Name is relative to the module's folder, with slashes.
type File struct {
	Name    string
	Content []byte
}

func (f File) test() bool { return strings.HasSuffix(f.Name, "_test.go") }

// CheckFiles returns one line for each violation of a file.
func CheckFiles(files []File) ([]string, error) {
	return checkFiles(files, longFiles())
}

func checkFiles(files []File, long map[string]string) ([]string, error) {
	found := checkDeadlines(files)
	bubbles := bubbleFolders(files)
	for _, file := range files {
		found = append(found, checkLength(file, long)...)
		found = append(found, checkWidth(file)...)
		broken, err := checkSyntax(file, bubbles[path.Dir(file.Name)])
		if err != nil {
			return nil, err
		}
		found = append(found, broken...)
	}
	return found, nil
}

func checkLength(file File, long map[string]string) []string {
	limit := maxLines
	if file.test() {
		limit = maxTestLines
	}
	lines := bytes.Count(file.Content, []byte("\n"))
	_, excused := long[file.Name]
	switch {
	case lines > limit && !excused:
		return []string{fmt.Sprintf("%s: %d lines, more than %d: it holds more than one idea", file.Name, lines, limit)}
	case lines <= limit && excused:
		return []string{fmt.Sprintf("%s: has %d lines now and needs no exception", file.Name, lines)}
	}
	return nil
}

// checkWidth finds wide lines. A line with a text or a link may be wide: they are not broken, so
// that a search finds them.
func checkWidth(file File) (found []string) {
	texts := textLines(file.Content)
	outputs := path.Base(file.Name) == "example_test.go" // an example's output can't be broken
	for i, line := range bytes.Split(file.Content, []byte("\n")) {
		if utf8.RuneCount(line) > maxColumns && !outputs && !texts[i+1] && !bytes.ContainsAny(line, "\"`") &&
			!bytes.Contains(line, []byte("://")) {
			found = append(found, fmt.Sprintf("%s:%d: more than %d columns", file.Name, i+1, maxColumns))
		}
	}
	return found
}

// textLines returns the numbers of the lines within texts of several lines.
func textLines(content []byte) map[int]bool {
	lines := map[int]bool{}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(content))
	s.Init(file, content, nil, 0)
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return lines
		}
		for i := range strings.Count(text, "\n") {
			if kind == token.STRING {
				lines[file.Line(pos)+i+1] = true
			}
		}
	}
}

// checkDeadlines finds programs whose requests to the API server may wait forever.
func checkDeadlines(files []File) []string {
	clients, deadlines := map[string]string{}, map[string]bool{}
	for _, file := range files {
		folder := path.Dir(file.Name)
		if file.test() || !strings.HasPrefix(folder, "cmd/") {
			continue
		}
		if bytes.Contains(file.Content, []byte("kubernetes.NewForConfig")) {
			clients[folder] = file.Name
		}
		deadlines[folder] = deadlines[folder] || bytes.Contains(file.Content, []byte("kube.WithDeadline"))
	}
	var found []string
	for _, folder := range slices.Sorted(maps.Keys(clients)) {
		if !deadlines[folder] {
			found = append(found, clients[folder]+": a client of the API server that waits for ever: kube.WithDeadline")
		}
	}
	return found
}

// bubbleFolders are those with tests that use testing/synctest. There a sleep costs nothing and
// ends exactly in time; helpers of such tests sleep too.
func bubbleFolders(files []File) map[string]bool {
	folders := map[string]bool{}
	for _, file := range files {
		if file.test() && bytes.Contains(file.Content, []byte(`"testing/synctest"`)) {
			folders[path.Dir(file.Name)] = true
		}
	}
	return folders
}

// checkSyntax checks the syntax of a file; bubble means that the clock of its tests is a virtual
// one.
func checkSyntax(file File, bubble bool) ([]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file.Name, file.Content, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("parse a file of the tree: %w", err)
	}
	if ast.IsGenerated(tree) {
		return nil, nil
	}
	var found []string
	report := func(node ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s: %s", set.Position(node.Pos()), what))
	}
	commented := commentedLines(set, tree)
	ast.Inspect(tree, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			if node.Name.Name == "init" && node.Recv == nil {
				report(node, "init(): what a package needs is given to it by its caller")
			}
		case *ast.SelectorExpr:
			of, ok := node.X.(*ast.Ident)
			if ok && of.Name == "http" && !file.test() &&
				(node.Sel.Name == "DefaultTransport" || node.Sel.Name == "DefaultClient") {
				report(node, "http."+node.Sel.Name+" sends no pings, so a dead connection is never given up: requests.NewTransport")
			}
		case *ast.CallExpr:
			line := set.Position(node.Pos()).Line
			switch {
			case file.test() && skipsSilently(node):
				report(node, "a test is skipped without a reason")
			case file.test() && !bubble && calls(node, "time", "Sleep") && !commented[line] && !commented[line-1]:
				report(node, "time.Sleep in a test: wait for what is awaited, or say why time has to pass")
			}
		}
		return true
	})
	return found, nil
}

// skipsSilently matches t.SkipNow() and t.Skip() with any name for t.
func skipsSilently(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	return selector.Sel.Name == "SkipNow" || selector.Sel.Name == "Skip"
}

func calls(call *ast.CallExpr, pkg, name string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	of, ok := selector.X.(*ast.Ident)
	return ok && of.Name == pkg
}

func commentedLines(set *token.FileSet, tree *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range tree.Comments {
		for line := set.Position(group.Pos()).Line; line <= set.Position(group.End()).Line; line++ {
			lines[line] = true
		}
	}
	return lines
}
