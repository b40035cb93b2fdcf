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

const headRemedy = "begin it with the lines apiVersion: " + apiVersion + " and kind: " + kind

// loadFile reads the values of the file strictly, and reports whether it has a readable form. It
// walks the document's nodes, because decoding into a struct stops at the first mistake and reads
// 1.10 as 1.1.
func (l *loader) loadFile(content []byte) (readable bool) {
	unreadable := func(problem, remedy string, cause error) bool {
		l.problems = Errors{{
			Field: l.fileFlag, Value: l.file, Problem: problem, Remedy: remedy, Cause: cause,
		}}
		return false
	}
	if content == nil {
		var err error
		if content, err = l.readFile(l.file); err != nil {
			return unreadable(fmt.Sprintf("the file can't be read: %v", err),
				"name a file that exists and that this process may read", err)
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var root, second yaml.Node
	err := decoder.Decode(&root)
	switch {
	case errors.Is(err, io.EOF):
		return unreadable("the file is empty", headRemedy, nil)
	case err != nil:
		return unreadable(fmt.Sprintf("the file is not valid YAML: %v", err), "correct the syntax", err)
	case !errors.Is(decoder.Decode(&second), io.EOF):
		return unreadable("the file holds more than one document",
			"remove everything from the second --- on", nil)
	case len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode:
		return unreadable("the file is not a mapping of keys to values", headRemedy, nil)
	}
	l.section(root.Content[0], "")
	for _, s := range l.rows {
		section, _ := cutLast(s.key)
		switch {
		case s.fallback != required || l.inFile(s.key) || l.complained(s.key) || l.complained(section):
		case section == "":
			l.misformed(s.key, "the key is missing", headRemedy)
		default:
			l.misformed(s.key, "the key is missing", "give it: "+s.describe)
		}
	}
	return true
}

// misformed adds an error about the form of a key. It never repeats the value, which might be a
// secret.
func (l *loader) misformed(field, problem, remedy string) {
	l.problems = append(l.problems, &Error{Field: field, Problem: problem, Remedy: remedy})
}

func (l *loader) complained(field string) bool {
	return slices.ContainsFunc(l.problems, func(e *Error) bool { return e.Field == field })
}

// section reads the keys of a section; "" is the root.
func (l *loader) section(node *yaml.Node, section string) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := fieldIn(section, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode && section == "":
			l.misformed(l.fileFlag, "a key is not plain text", "use a documented key")
		case key.Kind != yaml.ScalarNode:
			l.misformed(section, "a key is not plain text", "use a documented key")
		case seen[key.Value]:
			l.misformed(field, "the key is there twice", "remove one of the two")
		default:
			l.value(field, value)
		}
		seen[key.Value] = true
	}
}

// value reads the value of field, which may be a section or a list of sections.
func (l *loader) value(field string, node *yaml.Node) {
	row := slices.IndexFunc(l.rows, func(s setting) bool { return s.key == field })
	switch {
	case row >= 0 && l.rows[row].items != nil:
		l.list(l.rows[row], node)
	case row >= 0:
		l.setting(l.rows[row], node)
	case len(keysIn(field)) == 0:
		l.misformed(field, "unknown key", advise(field))
	case node.Kind == yaml.MappingNode:
		l.section(node, field)
	case !isNull(node):
		l.misformed(field, "is not a section of keys",
			"write its keys below it, indented: "+strings.Join(keysIn(field), ", "))
	}
}

func (l *loader) list(s setting, node *yaml.Node) {
	l.values[s.key] = []string{}
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		l.misformed(s.key, "is not a "+s.describe, "write at least one "+s.of+", or remove the key")
		return
	}
	l.rows = append(l.rows, s.items(len(node.Content))...)
	for i, node := range node.Content {
		section := item(s.key, i)
		if node.Kind != yaml.MappingNode {
			l.misformed(section, "is not a section of keys",
				"write the "+s.of+"'s keys: "+strings.Join(keysIn(section), ", "))
			continue
		}
		l.section(node, section)
	}
}

func (l *loader) setting(s setting, node *yaml.Node) {
	nodes, wanted := []*yaml.Node{node}, "a single value"
	if s.list {
		nodes, wanted = node.Content, "a list"
	}
	if s.list != (node.Kind == yaml.SequenceNode) {
		l.misformed(s.key, "is not "+wanted, "write "+wanted+": "+s.describe)
		return
	}
	items := []string{}
	for _, n := range nodes {
		if n.Kind != yaml.ScalarNode || isNull(n) || !strings.HasPrefix(n.ShortTag(), "!!") {
			l.misformed(s.key, "has no plain value", "write "+s.describe+", or remove the key")
			return
		}
		items = append(items, n.Value)
	}
	l.values[s.key] = items
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

// advise returns the remedy for an unknown key.
func advise(field string) string {
	if lower := strings.ToLower(field); lower == "token" || lower == "hcloud_token" {
		return "the token does not belong in this file: " +
			"put it into a file of its own and name that in tokenFile"
	}
	section, _ := cutLast(field)
	neighbors := keysIn(section)
	if nearest := nearestKey(field, neighbors); nearest != "" {
		return "did you mean " + fieldIn(section, nearest) + "?"
	}
	nearest := nearestKey(field, allKeys())
	if nearest != "" && !strings.Contains(section, "[") { // items have only keys of their own kind
		return "did you mean " + nearest + "?"
	}
	return "remove it, or use one of " + strings.Join(neighbors, ", ")
}

// allKeys returns all keys and sections; those of list items appear once, as in pools[].name.
func allKeys() (keys []string) {
	for _, s := range documented() {
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

// nearestKey returns the known key that was probably meant: with the same last part, in any
// section, or a few letters different; otherwise "".
func nearestKey(field string, known []string) (nearest string) {
	_, last := cutLast(strings.ToLower(field))
	best := max(1, min(len(last), 30)/3) + 1
	for _, key := range known {
		_, knownLast := cutLast(strings.ToLower(key))
		if away := editdistance.Between(last, knownLast); away < best {
			nearest, best = key, away
		}
	}
	return nearest
}
