package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Flags maps the given flags to their values, as in "--cluster-cidr". An empty value counts as not
// given.
type Flags map[string]string

// FileFlag names the file.
const FileFlag = "--cloud-config"

// FlagNames returns the names of the flags that Load reads, besides FileFlag.
func FlagNames() (names []string) {
	for _, s := range flagSettings(&loader{}) {
		names = append(names, s.flag)
	}
	return names
}

// Load combines flags, file and environment. file is the content of the file of --cloud-config;
// if nil, it is read through readFile if its path is given. The error is Errors and contains all
// mistakes; warnings are valid either way.
func Load(flags Flags, file []byte, getenv func(string) string, readFile func(string) ([]byte, error)) (Config, []Warning, error) {
	l := &loader{flags: flags, file: flags[FileFlag], fileFlag: FileFlag, getenv: getenv, readFile: readFile}
	err := l.load(file)
	return l.Config, l.warnings, err
}

// loader fills a Config, which is valid only if there are no problems.
type loader struct {
	Config
	flags Flags
	// fileFlag is the program's flag that names the file.
	file, fileFlag string
	getenv         func(string) string
	readFile       func(string) ([]byte, error)
	// onNode means that the node agent reads the file. It has neither the token nor the
	// controller manager's environment, so settings may be missing.
	onNode bool

	rows  []setting // those of the table, then those of the lists' items
	lists []list
	// values are those of the file. If the file is unread, a missing key is no mistake.
	values   map[string]given
	unread   bool
	problems Errors
	warnings []Warning

	// Settings that Config holds in another form.
	routesFlag, routesVariable     bool
	clusterCIDRs                   []netip.Prefix
	clustersWhole                  bool // every item of the flag was readable
	nodeMask, nodeMask4, nodeMask6 int
}

func (l *loader) load(content []byte) error {
	l.origins, l.rows, l.lists = map[string]place{}, settings(l), lists(l)
	if content != nil || l.file != "" {
		l.loadFile(content)
	}
	for _, s := range l.rows {
		l.read(s, l.flags[s.flag])
	}
	l.clustersWhole = !l.isWrong(clusterFlag)
	l.foreignVariables()
	l.check()
	if len(l.problems) == 0 {
		return nil
	}
	l.problems.sort()
	l.Config = Config{}
	return l.problems
}

// read stores a setting from its highest source: flag, file, environment, default.
func (l *loader) read(s setting, flag string) {
	items, at := []string{s.fallback}, place{field: cmp.Or(s.flag, s.env)}
	given, inFile := l.values[s.key]
	text := flag
	if flag == "" && s.env != "" && !inFile {
		text = l.getenv(s.env)
	}
	switch {
	case text != "" && s.list:
		items = strings.Split(text, ",")
	case text != "":
		items = []string{text}
	case inFile:
		items, at = given.items, place{s.key, given.line}
	default:
		// Defaults are valid; a test reads all of them.
		if s.fallback != "" && s.fallback != required {
			_ = s.format.read(items)
		}
		return
	}
	l.origins[s.field()] = at
	for _, e := range s.format.read(items) {
		e.Field, e.Line = at.field, at.line
		e.Value = cmp.Or(e.Value, strings.Join(items, ","))
		if s.secret {
			e.Value = redacted
		}
		l.problems = append(l.problems, e)
	}
}

func (l *loader) isSet(field string) bool { return l.Given(field) }

func (l *loader) inFile(field string) bool { return l.origins[field].line > 0 }

// isWrong reports whether the setting has an error, so that further ones would only add noise.
func (l *loader) isWrong(field string) bool {
	origin := l.origins[field].field
	return slices.ContainsFunc(l.problems, func(e *Error) bool {
		return e.Field == field || origin != "" && e.Field == origin
	})
}

// isWrongIn reports whether a list has an error anywhere, so that it is not completely readable.
func (l *loader) isWrongIn(list string) bool {
	return slices.ContainsFunc(l.problems, func(e *Error) bool {
		return e.Field == list || strings.HasPrefix(e.Field, list+"[")
	})
}

// origin returns the place where the setting was given or could be given: for a key that is
// missing in a list's item, the item.
func (l *loader) origin(field string) place {
	if origin, set := l.origins[field]; set {
		return origin
	}
	section, _ := cutLast(field)
	return place{field, cmp.Or(l.values[field].line, l.values[section].line)}
}

// complain adds an error about the setting, at the place where it was given.
func (l *loader) complain(field, value, problem, remedy string) {
	l.complainAt(l.origin(field), value, problem, remedy)
}

func (l *loader) complainAt(at place, value, problem, remedy string) {
	l.problems = append(l.problems, &Error{
		Field: at.field, Line: at.line, Value: value, Problem: problem, Remedy: remedy,
	})
}

func (l *loader) warn(field, problem string, arguments ...any) {
	l.warnings = append(l.warnings, Warning{l.origin(field).field, fmt.Sprintf(problem, arguments...)})
}
