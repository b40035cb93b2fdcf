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

	"github.com/underlay-ccm/underlay/internal/editdistance"
)

// place is where a setting was given: a flag, a variable, or a key on a line of
// the file.
type place struct {
	field string
	line  int
}

// given is a value of the file as it was written.
type given struct {
	items []string
	line  int
}

// file is the file's values by key. It knows the form of the file, not the meaning of a value.
type file struct {
	// rows are those of the table and, behind them, those of the lists' items.
	rows   []setting
	lists  []list
	values map[string]given
	// items are the lines on which each list of sections, and each item of one, begins.
	items    map[string]int
	problems Errors
	// unread is why nobody knows what stands in the file; a key that is missing is no mistake then.
	unread *Error
}

// decode reads the file strictly. It walks the document's nodes: decoding into a struct stops at
// the first mistake, loses the lines, and takes 1.10 for 1.1.
func (f *file) decode(content []byte) {
	f.values, f.items = map[string]given{}, map[string]int{}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var root, second yaml.Node
	err := decoder.Decode(&root)
	switch {
	case errors.Is(err, io.EOF):
		f.unread = wrong("the file is empty", headRemedy)
	case err != nil:
		f.unread = wrong(fmt.Sprintf("the file is not valid YAML: %v", err), "correct the syntax")
		f.unread.Cause = err
	case !errors.Is(decoder.Decode(&second), io.EOF):
		f.unread = wrong("the file holds more than one document", "remove everything from the second --- on")
	case len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode:
		f.unread = wrong("the file is not a mapping of keys to values", headRemedy)
	default:
		f.section(root.Content[0], "")
		f.requireKeys()
	}
}

const headRemedy = "begin it with the lines apiVersion: " + apiVersion + " and kind: " + kind

// section reads the keys below a section; "" is the root.
func (f *file) section(node *yaml.Node, section string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := fieldIn(section, key.Value)
		switch line, twice := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode && section == "":
			f.unread = &Error{Line: key.Line, Problem: "a key is not plain text", Remedy: "use a documented key"}
		case key.Kind != yaml.ScalarNode:
			f.complain(section, key.Line, "a key is not plain text", "use a documented key")
		case twice:
			f.complain(field, key.Line, fmt.Sprintf("the key is already on line %d", line), "remove one of the two")
		default:
			seen[key.Value] = key.Line
			f.value(field, key.Line, value)
		}
	}
}

// value reads what stands at field, which may be a section of its own.
func (f *file) value(field string, line int, node *yaml.Node) {
	row := slices.IndexFunc(f.rows, func(s setting) bool { return s.key == field })
	list := slices.IndexFunc(f.lists, func(l list) bool { return l.key == field })
	switch {
	case row >= 0:
		f.setting(f.rows[row], line, node)
	case list >= 0:
		f.list(f.lists[list], line, node)
	case len(keysIn(field)) == 0:
		f.complain(field, line, "unknown key", advise(field))
	case node.Kind == yaml.MappingNode:
		f.section(node, field)
	case !isNull(node):
		f.complain(field, line, "is not a section of keys",
			"write its keys below it, indented: "+strings.Join(keysIn(field), ", "))
	}
}

// list reads a list of sections.
func (f *file) list(l list, line int, node *yaml.Node) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		f.complain(l.key, line, "is not a list of "+l.of+"s", "write at least one "+l.of+", or remove the key")
		return
	}
	f.items[l.key] = line
	f.rows = append(f.rows, l.rows(len(node.Content))...)
	for i, node := range node.Content {
		section := item(l.key, i)
		f.items[section] = node.Line
		if node.Kind != yaml.MappingNode {
			f.complain(section, node.Line, "is not a section of keys",
				"write the "+l.of+"'s keys: "+strings.Join(keysIn(section), ", "))
			continue
		}
		f.section(node, section)
	}
}

func (f *file) setting(s setting, line int, node *yaml.Node) {
	value, nodes, wanted := given{line: line}, []*yaml.Node{node}, "a single value"
	if s.list {
		wanted = "a list"
	}
	isList := node.Kind == yaml.SequenceNode
	if isList {
		nodes = node.Content
	}
	if s.list != isList {
		f.complain(s.key, line, "is not "+wanted, "write "+wanted+": "+s.describe)
		return
	}
	for _, item := range nodes {
		if item.Kind != yaml.ScalarNode || isNull(item) || !strings.HasPrefix(item.ShortTag(), "!!") {
			f.complain(s.key, item.Line, "has no plain value", "write "+s.describe+", or remove the key")
			return
		}
		value.items = append(value.items, item.Value)
	}
	f.values[s.key] = value
}

func (f *file) requireKeys() {
	for _, s := range f.rows {
		section, _ := cutLast(s.key)
		_, has := f.values[s.key]
		complained := slices.ContainsFunc(f.problems, func(e *Error) bool {
			return e.Field == s.key || section != "" && e.Field == section
		})
		if s.fallback != required || has || complained {
			continue
		}
		remedy := "give it: " + s.describe
		if section == "" {
			remedy = headRemedy
		}
		f.complain(s.key, f.items[section], "the key is missing", remedy)
	}
}

func (f *file) complain(field string, line int, problem, remedy string) {
	f.problems = append(f.problems, &Error{Field: field, Line: line, Problem: problem, Remedy: remedy})
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
	return strings.TrimPrefix(section+"."+key, ".")
}

// cutLast is the section of a field, "" for none, and its own name.
func cutLast(field string) (section, name string) {
	at := strings.LastIndex(field, ".")
	return field[:max(at, 0)], field[at+1:]
}

// advise says what to do about an unknown key. It never repeats the value: whoever mistypes
// tokenFile may have put the token there.
func advise(field string) string {
	if lower := strings.ToLower(field); lower == "token" || lower == "hcloud_token" {
		return "the token does not belong in this file: put it into a file of its own and name that in tokenFile"
	}
	section, _ := cutLast(field)
	var neighbors []string
	for _, name := range keysIn(section) {
		neighbors = append(neighbors, fieldIn(section, name))
	}
	nearest := nearestKey(field, neighbors)
	if nearest == "" && !strings.Contains(section, "[") { // entries of lists have keys of one kind
		nearest = nearestKey(field, allKeys())
	}
	if nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return "remove it, or use one of " + strings.Join(keysIn(section), ", ")
}

// allKeys are all keys and sections; those in a list's items stand there once,
// as in pools[].name.
func allKeys() (keys []string) {
	var l loader
	rows := settings(&l)
	for _, list := range lists(&l) {
		rows = append(append(rows, setting{key: list.key}), list.documented()...)
	}
	for _, s := range rows {
		section, _ := cutLast(s.key)
		for _, key := range []string{section, s.key} {
			if key != "" && !strings.HasSuffix(key, "[]") && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

var itemNumber = regexp.MustCompile(`\[[0-9]+\]`)

// keysIn returns the names that may stand directly in a section.
func keysIn(section string) (names []string) {
	section = itemNumber.ReplaceAllString(section, "[]")
	for _, key := range allKeys() {
		if in, name := cutLast(key); in == section {
			names = append(names, name)
		}
	}
	return names
}

// nearestKey returns the known key that was probably meant: one with the same
// last part in another section, or one a few letters away; else nothing.
func nearestKey(field string, known []string) string {
	_, last := cutLast(strings.ToLower(field))
	nearest, best := "", max(1, min(len(last), 30)/3)+1
	for _, key := range known {
		_, knownLast := cutLast(strings.ToLower(key))
		away := min(
			editdistance.Between(strings.ToLower(field), strings.ToLower(key)),
			editdistance.Between(last, knownLast),
		)
		if away < best {
			nearest, best = key, away
		}
	}
	return nearest
}
