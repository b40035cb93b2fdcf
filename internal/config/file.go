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

// place is where a setting was given: a flag, a variable, or a key on a line of the file.
type place struct {
	field string
	line  int
}

// given is a value of the file as written, or the start of a list or of its item.
type given struct {
	items []string
	line  int
}

// loadFile reads the values of the file strictly. It checks the form of the file, not the
// meaning of values. It walks the document's nodes, because decoding into a struct stops at the
// first mistake, loses the lines and reads 1.10 as 1.1.
func (l *loader) loadFile(content []byte) {
	l.values = map[string]given{}
	var err error
	if content == nil {
		content, err = l.readFile(l.file)
	}
	if err != nil {
		l.unreadable(0, fmt.Sprintf("the file can't be read: %v", err),
			"name a file that exists and that this process may read", err)
		return
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var root, second yaml.Node
	err = decoder.Decode(&root)
	switch {
	case errors.Is(err, io.EOF):
		l.unreadable(0, "the file is empty", headRemedy, nil)
	case err != nil:
		l.unreadable(0, fmt.Sprintf("the file is not valid YAML: %v", err), "correct the syntax", err)
	case !errors.Is(decoder.Decode(&second), io.EOF):
		l.unreadable(0, "the file holds more than one document", "remove everything from the second --- on", nil)
	case len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode:
		l.unreadable(0, "the file is not a mapping of keys to values", headRemedy, nil)
	default:
		l.section(root.Content[0], "")
		l.requireKeys()
	}
}

func (l *loader) unreadable(line int, problem, remedy string, cause error) {
	l.unread = true
	l.problems = append(l.problems, &Error{
		Field: l.fileFlag, Line: line, Value: l.file, Problem: problem, Remedy: remedy, Cause: cause,
	})
}

const headRemedy = "begin it with the lines apiVersion: " + apiVersion + " and kind: " + kind

// section reads the keys of a section; "" is the root.
func (l *loader) section(node *yaml.Node, section string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := fieldIn(section, key.Value)
		switch line, twice := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode && section == "":
			l.unreadable(key.Line, "a key is not plain text", "use a documented key", nil)
		case key.Kind != yaml.ScalarNode:
			l.complainAt(place{section, key.Line}, "", "a key is not plain text", "use a documented key")
		case twice:
			l.complainAt(place{field, key.Line}, "", fmt.Sprintf("the key is already on line %d", line), "remove one of the two")
		default:
			seen[key.Value] = key.Line
			l.value(field, key.Line, value)
		}
	}
}

// value reads the value of field, which may be a section.
func (l *loader) value(field string, line int, node *yaml.Node) {
	row := slices.IndexFunc(l.rows, func(s setting) bool { return s.key == field })
	list := slices.IndexFunc(l.lists, func(of list) bool { return of.key == field })
	switch {
	case row >= 0:
		l.setting(l.rows[row], line, node)
	case list >= 0:
		l.list(l.lists[list], line, node)
	case len(keysIn(field)) == 0:
		l.complainAt(place{field, line}, "", "unknown key", advise(field))
	case node.Kind == yaml.MappingNode:
		l.section(node, field)
	case !isNull(node):
		l.complainAt(place{field, line}, "", "is not a section of keys",
			"write its keys below it, indented: "+strings.Join(keysIn(field), ", "))
	}
}

func (l *loader) list(of list, line int, node *yaml.Node) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		l.complainAt(place{of.key, line}, "", "is not a list of "+of.of+"s",
			"write at least one "+of.of+", or remove the key")
		return
	}
	l.values[of.key] = given{line: line}
	l.rows = append(l.rows, of.rows(len(node.Content))...)
	for i, node := range node.Content {
		section := item(of.key, i)
		l.values[section] = given{line: node.Line}
		if node.Kind != yaml.MappingNode {
			l.complainAt(place{section, node.Line}, "", "is not a section of keys",
				"write the "+of.of+"'s keys: "+strings.Join(keysIn(section), ", "))
			continue
		}
		l.section(node, section)
	}
}

func (l *loader) setting(s setting, line int, node *yaml.Node) {
	value, nodes, wanted := given{line: line}, []*yaml.Node{node}, "a single value"
	if s.list {
		nodes, wanted = node.Content, "a list"
	}
	if s.list != (node.Kind == yaml.SequenceNode) {
		l.complainAt(place{s.key, line}, "", "is not "+wanted, "write "+wanted+": "+s.describe)
		return
	}
	for _, n := range nodes {
		if n.Kind != yaml.ScalarNode || isNull(n) || !strings.HasPrefix(n.ShortTag(), "!!") {
			l.complainAt(place{s.key, n.Line}, "", "has no plain value", "write "+s.describe+", or remove the key")
			return
		}
		value.items = append(value.items, n.Value)
	}
	l.values[s.key] = value
}

func (l *loader) requireKeys() {
	for _, s := range l.rows {
		section, _ := cutLast(s.key)
		_, has := l.values[s.key]
		complained := l.isWrong(s.key) || section != "" && l.isWrong(section)
		if s.fallback != required || has || complained {
			continue
		}
		remedy := "give it: " + s.describe
		if section == "" {
			remedy = headRemedy
		}
		l.complainAt(place{s.key, l.values[section].line}, "", "the key is missing", remedy)
	}
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,60}$`)

// fieldIn returns a key's full name, quoted if unusual, so that it can't imitate a message.
func fieldIn(section, key string) string {
	if !plainKey.MatchString(key) {
		key = quote(key)
	}
	return strings.TrimPrefix(section+"."+key, ".")
}

// cutLast splits a field into its section, "" for the root, and its own name.
func cutLast(field string) (section, name string) {
	at := strings.LastIndex(field, ".")
	return field[:max(at, 0)], field[at+1:]
}

// advise returns the remedy for an unknown key. It never repeats the value: a mistyped tokenFile
// may hold the token itself.
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
	if nearest == "" && !strings.Contains(section, "[") { // items of lists have only keys of their own kind
		nearest = nearestKey(field, allKeys())
	}
	if nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return "remove it, or use one of " + strings.Join(keysIn(section), ", ")
}

// allKeys returns all keys and sections; those of list items appear once, as in pools[].name.
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

func keysIn(section string) (names []string) {
	section = itemNumber.ReplaceAllString(section, "[]")
	for _, key := range allKeys() {
		if in, name := cutLast(key); in == section {
			names = append(names, name)
		}
	}
	return names
}

// nearestKey returns the known key that was probably meant: with the same last part in another
// section, or a few letters different; otherwise "".
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
