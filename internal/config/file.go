package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// place is where a setting was given: a flag, a variable, or a key on a line of
// the file.
type place struct {
	field string
	line  int
}

// given is a setting as it was written somewhere.
type given struct {
	place
	items []string
	list  bool
}

// decoded is what stands in a file.
type decoded struct {
	// values by key.
	values map[string]given
	// rows are those of the table and, behind them, those of the lists' items.
	rows []setting
	// items tells on which line each list of sections, and each item of one,
	// begins.
	items map[string]int
}

// fileReader collects the file's values by key. It knows the form of the
// file, not the meaning of a value.
type fileReader struct {
	decoded
	lists    []list
	problems Errors
}

// decodeFile decodes the file strictly. It walks the document's nodes, because
// decoding into a struct stops at the first mistake and loses the lines. A
// mistake without a field is about the file as a whole.
func decodeFile(content []byte, rows []setting, lists []list) (decoded, Errors) {
	r := &fileReader{
		decoded: decoded{values: map[string]given{}, rows: slices.Clone(rows), items: map[string]int{}},
		lists:   lists,
	}
	root, problem := document(content)
	if problem != nil {
		return r.decoded, Errors{problem}
	}
	r.mapping(root, "")
	r.requireKeys()
	return r.decoded, r.problems
}

// document returns the only document's root.
func document(content []byte) (*yaml.Node, *Error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var first, second yaml.Node
	if err := decoder.Decode(&first); err != nil {
		problem := &Error{Problem: fmt.Sprintf("the file is not valid YAML: %v", err), Remedy: "correct the syntax", Cause: err}
		if errors.Is(err, io.EOF) {
			problem.Problem = "the file is empty"
			problem.Remedy = headRemedy()
		}
		return nil, problem
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, &Error{
			Problem: "the file holds more than one document",
			Remedy:  "remove everything from the second --- on",
		}
	}
	if len(first.Content) != 1 || first.Content[0].Kind != yaml.MappingNode {
		return nil, &Error{
			Problem: "the file is not a mapping of keys to values",
			Remedy:  headRemedy(),
		}
	}
	return first.Content[0], nil
}

func headRemedy() string {
	return fmt.Sprintf("begin it with the lines apiVersion: %s and kind: %s", apiVersion, kind)
}

// mapping reads the keys below section; "" is the root.
func (r *fileReader) mapping(node *yaml.Node, section string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			r.complain(section, key.Line, "a key is not plain text", "use a documented key")
			continue
		}
		field := fieldIn(section, key.Value)
		if line, twice := seen[key.Value]; twice {
			r.complain(field, key.Line, fmt.Sprintf("the key is already on line %d", line), "remove one of the two")
			continue
		}
		seen[key.Value] = key.Line
		r.value(field, key.Line, value)
	}
}

// value reads what stands at field, which may be a section of its own.
func (r *fileReader) value(field string, line int, node *yaml.Node) {
	row := slices.IndexFunc(r.rows, func(s setting) bool { return s.key == field })
	list := slices.IndexFunc(r.lists, func(l list) bool { return l.key == field })
	switch {
	case row >= 0:
		r.setting(r.rows[row], line, node)
	case list >= 0:
		r.list(r.lists[list], line, node)
	case !r.isSection(field):
		problem, remedy := r.unknown(field)
		r.complain(field, line, problem, remedy)
	case node.Kind == yaml.MappingNode:
		r.mapping(node, field)
	case !isNull(node):
		r.complain(field, line, "is not a section of keys", "write its keys below it, indented: "+strings.Join(r.keysIn(field), ", "))
	}
}

// list reads a list of sections. The rows of each item are added as it comes.
func (r *fileReader) list(l list, line int, node *yaml.Node) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.complain(l.key, line, "is not a list of "+l.of+"s", "write at least one "+l.of+", or remove the key")
		return
	}
	r.items[l.key] = line
	for i, item := range node.Content {
		section := fmt.Sprintf("%s[%d]", l.key, i)
		r.rows = append(r.rows, l.item(section)...)
		r.items[section] = item.Line
		if item.Kind != yaml.MappingNode {
			r.complain(section, item.Line, "is not a section of keys", "write the "+l.of+"'s keys: "+strings.Join(r.keysIn(section), ", "))
			continue
		}
		r.mapping(item, section)
	}
}

func (r *fileReader) setting(row setting, line int, node *yaml.Node) {
	value := given{place: place{row.key, line}}
	items := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		value.list = true
		items = node.Content
	}
	if row.format.list != value.list {
		wanted := "a single value"
		if row.format.list {
			wanted = "a list"
		}
		r.complain(row.key, line, "is not "+wanted, "write "+wanted+": "+row.format.describe)
		return
	}
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || isNull(item) || !strings.HasPrefix(item.ShortTag(), "!!") {
			r.complain(row.key, item.Line, "has no plain value", "write "+row.format.describe+", or remove the key")
			return
		}
		value.items = append(value.items, item.Value)
	}
	r.values[row.key] = value
}

func (r *fileReader) requireKeys() {
	for _, row := range r.rows {
		section, _, _ := cutLast(row.key)
		_, has := r.values[row.key]
		complained := slices.ContainsFunc(r.problems, func(e *Error) bool {
			return e.Field == row.key || section != "" && e.Field == section
		})
		if row.required && !has && !complained {
			remedy := "give it: " + row.format.describe
			if value := strings.Trim(row.format.describe, "`"); !strings.Contains(value, "`") {
				remedy = "write " + row.key + ": " + value
			}
			r.complain(row.key, r.items[section], "the key is missing", remedy)
		}
	}
}

func (r *fileReader) complain(field string, line int, problem, remedy string) {
	r.problems = append(r.problems, &Error{Field: field, Line: line, Problem: problem, Remedy: remedy})
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,60}$`)

// fieldIn names a key below a section; an odd one is quoted, so that it
// can't pretend to be something else in a message.
func fieldIn(section, key string) string {
	if !plainKey.MatchString(key) {
		key = quote(key)
	}
	if section == "" {
		return key
	}
	return section + "." + key
}
