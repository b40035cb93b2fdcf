package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Flags are the command-line values that bear on Underlay's own settings, as
// given. Empty or zero: not given. The two booleans always count as given;
// upstream's defaults are false and true.
type Flags struct {
	CloudProvider string
	// CloudConfig is the path of the file.
	CloudConfig                             string
	AllocateNodeCIDRs, ConfigureCloudRoutes bool
	CIDRAllocatorType                       string
	ClusterCIDR, ServiceClusterIPRange      string // comma-separated
	NodeCIDRMaskSize                        int
	NodeCIDRMaskSizeIPv4                    int
	NodeCIDRMaskSizeIPv6                    int
	ClusterName                             string
	RouteReconciliationPeriod               time.Duration
	// RouteReconciliationPeriodGiven: a period of zero was asked for too.
	RouteReconciliationPeriodGiven bool
}

// texts are the flags as they were written; those that were not given are empty.
func (f Flags) texts() map[string]string {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	texts := map[string]string{
		"--cloud-provider":         f.CloudProvider,
		"--allocate-node-cidrs":    strconv.FormatBool(f.AllocateNodeCIDRs),
		"--configure-cloud-routes": strconv.FormatBool(f.ConfigureCloudRoutes),
		"--cidr-allocator-type":    f.CIDRAllocatorType,
		clusterFlag:                f.ClusterCIDR,
		serviceFlag:                f.ServiceClusterIPRange,
		maskFlag:                   number(f.NodeCIDRMaskSize),
		maskFlagIPv4:               number(f.NodeCIDRMaskSizeIPv4),
		maskFlagIPv6:               number(f.NodeCIDRMaskSizeIPv6),
		"--cluster-name":           f.ClusterName,
	}
	if f.RouteReconciliationPeriod != 0 || f.RouteReconciliationPeriodGiven {
		texts["--route-reconciliation-period"] = f.RouteReconciliationPeriod.String()
	}
	return texts
}

// Load combines flags, file and environment. The file is the content of the
// one named by --cloud-config; nil: it is read through readFile, if a name is
// given at all. Its error is Errors, with everything that is wrong; warnings
// are valid either way.
func Load(flags Flags, file []byte, getenv func(string) string, readFile func(string) ([]byte, error)) (Config, []Warning, error) {
	l := &loader{flags: flags, fileFlag: "--cloud-config", getenv: getenv, readFile: readFile}
	err := l.load(file)
	return l.Config, l.warnings, err
}

// loader fills a Config, which is of use only if there are no problems.
type loader struct {
	Config
	flags Flags
	// fileFlag is the program's flag that names the file.
	fileFlag string
	getenv   func(string) string
	readFile func(string) ([]byte, error)
	// onNode: it is the node agent that reads the file. It has neither the token
	// nor the controller manager's environment, where what is missing may stand.
	onNode bool

	rows  []setting // those of the table and, behind them, those of the lists' items
	lists []list
	// values are the file's. unread: nobody knows what stands in it, and a key that is missing is no
	// mistake.
	values   map[string]given
	unread   bool
	problems Errors
	warnings []Warning

	// What Config has in another form.
	routesFlag, routesVariable     bool
	clusterCIDRs                   []netip.Prefix
	clustersWhole                  bool // every item of the flag was readable
	nodeMask, nodeMask4, nodeMask6 int
}

// load reads the file and every setting, and then compares them with each other.
func (l *loader) load(content []byte) error {
	l.origins, l.rows, l.lists = map[string]place{}, settings(l), lists(l)
	if content != nil || l.flags.CloudConfig != "" {
		l.loadFile(content)
	}
	flags := l.flags.texts()
	for _, s := range l.rows {
		l.read(s, flags[s.flag])
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

// read stores a setting of the highest source: flag, file, environment, default.
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
		// A default is written by us and correct; a test reads them all.
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

// isSet reports whether any source gives the setting.
func (l *loader) isSet(field string) bool { return l.Given(field) }

// inFile reports whether the file gives the setting.
func (l *loader) inFile(field string) bool { return l.origins[field].line > 0 }

// isWrong reports whether a setting's value has already been complained about,
// so that comparing it with others would only add noise.
func (l *loader) isWrong(field string) bool {
	origin := l.origins[field].field
	return slices.ContainsFunc(l.problems, func(e *Error) bool {
		return e.Field == field || origin != "" && e.Field == origin
	})
}

// isWrongIn reports whether anything in a list has been complained about, so that
// nobody knows all of it.
func (l *loader) isWrongIn(list string) bool {
	return slices.ContainsFunc(l.problems, func(e *Error) bool {
		return e.Field == list || strings.HasPrefix(e.Field, list+"[")
	})
}

// origin is where the setting was given, or where it could be: for a key that
// an item of a list lacks, at the item.
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
