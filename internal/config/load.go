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
func Load(
	flags Flags, file []byte, getenv func(string) string, readFile func(string) ([]byte, error),
) (Config, []Warning, error) {
	l := &loader{
		flags: flags, file: flags[FileFlag], fileFlag: FileFlag, getenv: getenv, readFile: readFile,
	}
	err := l.load(file)
	return l.Config, l.warnings, err
}

// LoadAgent reads the same file as Load for the node agent: without a token, Robot and environment
// variables, and without requiring settings that only the controller manager needs. An invalid
// file is refused as a whole, and warnings are left to Load. clusterCIDR is the flag's value.
// Inventory is empty with a cloud, which is the source of the addresses of Nodes.
func LoadAgent(
	path, clusterCIDR string, readFile func(string) ([]byte, error),
) (Config, error) {
	l := &loader{
		flags: Flags{clusterFlag: clusterCIDR}, file: path, fileFlag: "--config",
		getenv: func(string) string { return "" }, readFile: readFile, onNode: true,
	}
	err := l.load(nil)
	if l.Provider != Metal {
		l.Inventory = nil
	}
	return l.Config, err
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

	rows []setting // those of the table, then those of the lists' items
	// values are the keys of the file as written: the items of a list, or a single one.
	values map[string][]string
	// malformed is the number of problems that were found before the checks between settings.
	malformed int
	problems  Errors
	warnings  []Warning

	// Settings that Config holds in another form.
	routesFlag, routesVariable     bool
	clusterCIDRs                   []netip.Prefix
	nodeMask, nodeMask4, nodeMask6 int
}

// load reads the file's form, then each setting, and at last checks the settings against each
// other. Of an unreadable file, nothing else is reported.
func (l *loader) load(content []byte) error {
	l.origins, l.values, l.rows = map[string]string{}, map[string][]string{}, settings(l)
	readable := true
	if content != nil || l.file != "" {
		readable = l.loadFile(content)
	}
	if readable {
		for _, s := range l.rows {
			l.read(s)
		}
		l.malformed = len(l.problems)
		l.check()
	}
	if len(l.problems) == 0 {
		return nil
	}
	l.Config = Config{}
	return l.problems
}

// read stores a setting from its highest source: flag, file, environment, default.
func (l *loader) read(s setting) {
	items, inFile := l.values[s.key]
	at, text := s.key, l.flags[s.flag]
	if s.env != "" && !inFile {
		text = l.getenv(s.env)
	}
	switch {
	case text != "" && s.list:
		at, items = cmp.Or(s.flag, s.env), strings.Split(text, ",")
	case text != "":
		at, items = cmp.Or(s.flag, s.env), []string{text}
	case inFile && s.read == nil: // a list of sections
		l.origins[s.key] = s.key
		return
	case inFile:
	default:
		// Defaults are valid; a test reads all of them.
		if s.fallback != "" && s.fallback != required {
			_ = s.read([]string{s.fallback})
		}
		return
	}
	l.origins[s.field()] = at
	for _, e := range s.read(items) {
		e.Field, e.Value = at, cmp.Or(e.Value, strings.Join(items, ","))
		if s.secret {
			e.Value = redacted
		}
		l.problems = append(l.problems, e)
	}
}

func (l *loader) isSet(field string) bool { return l.Given(field) }

func (l *loader) inFile(field string) bool { return l.values[field] != nil }

// isWrong reports whether the setting, its section or an item of it could not be read, so that
// further errors would only add noise.
func (l *loader) isWrong(field string) bool {
	at := l.origin(field)
	section, _ := cutLast(at)
	return slices.ContainsFunc(l.problems[:l.malformed], func(e *Error) bool {
		return e.Field == at || e.Field == section || strings.HasPrefix(e.Field, at+"[")
	})
}

// origin returns the place where the setting was given or could be given.
func (l *loader) origin(field string) string { return cmp.Or(l.origins[field], field) }

// complain adds an error about the setting, at the place where it was given, unless it could not
// be read.
func (l *loader) complain(field, value, problem, remedy string) {
	if !l.isWrong(field) {
		l.problems = append(l.problems, l.Wrong(field, value, problem, remedy, nil))
	}
}

func (l *loader) warn(field, problem string, arguments ...any) {
	l.warnings = append(l.warnings, Warning{l.origin(field), fmt.Sprintf(problem, arguments...)})
}
