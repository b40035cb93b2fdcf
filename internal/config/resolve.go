package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// resolver finds each setting's value in the sources by their precedence and
// remembers where it came from, for the errors that compare values later.
type resolver struct {
	flags Flags
	// fileFlag is the program's flag that names the file.
	fileFlag string
	file     decoded
	lists    []list
	getenv   func(string) string
	origins  map[string]given
	problems Errors
	warnings []Warning
	// unread: there is a file and it can't be read, so that nobody knows what
	// stands in it, and a key that is missing is no mistake.
	unread bool
	// onNode: it is the node agent that reads the file. It has neither the token
	// nor the controller manager's environment, where what is missing may stand.
	onNode bool
}

// resolve reads every row into the draft it is bound to.
func (r *resolver) resolve() {
	for _, row := range r.file.rows {
		value, has := r.lookup(row)
		if !has {
			// A default is written by us and correct; a test reads them all.
			if row.fallback != "" {
				_ = row.format.read([]string{row.fallback})
			}
			continue
		}
		r.origins[row.field()] = value
		for _, problem := range row.format.read(value.items) {
			problem.Field, problem.Line = value.field, value.line
			if problem.Value == "" {
				problem.Value = strings.Join(value.items, ",")
			}
			if row.secret {
				problem.Value = redacted
			}
			r.problems = append(r.problems, problem)
		}
	}
}

// lookup returns what the highest source says: flag, file, environment.
func (r *resolver) lookup(row setting) (given, bool) {
	if text := r.flags.text(row.flag); text != "" {
		return given{place: place{field: row.flag}, items: split(text, row.format.list)}, true
	}
	if value, has := r.file.values[row.key]; has && row.key != "" {
		return value, true
	}
	if row.env != "" {
		if text := r.getenv(row.env); text != "" {
			return given{place: place{field: row.env}, items: split(text, row.format.list)}, true
		}
	}
	return given{}, false
}

func split(text string, list bool) []string {
	if list {
		return strings.Split(text, ",")
	}
	return []string{text}
}

// text returns a flag as it was written, "" if it was not given.
func (f Flags) text(flag string) string {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	switch flag {
	case "--cloud-provider":
		return f.CloudProvider
	case "--allocate-node-cidrs":
		return strconv.FormatBool(f.AllocateNodeCIDRs)
	case "--configure-cloud-routes":
		return strconv.FormatBool(f.ConfigureCloudRoutes)
	case "--cidr-allocator-type":
		return f.CIDRAllocatorType
	case "--cluster-cidr":
		return f.ClusterCIDR
	case "--service-cluster-ip-range":
		return f.ServiceClusterIPRange
	case "--node-cidr-mask-size":
		return number(f.NodeCIDRMaskSize)
	case "--node-cidr-mask-size-ipv4":
		return number(f.NodeCIDRMaskSizeIPv4)
	case "--node-cidr-mask-size-ipv6":
		return number(f.NodeCIDRMaskSizeIPv6)
	case "--cluster-name":
		return f.ClusterName
	case "--route-reconciliation-period":
		if f.RouteReconciliationPeriod == 0 && !f.RouteReconciliationPeriodGiven {
			return ""
		}
		return f.RouteReconciliationPeriod.String()
	}
	return ""
}

// isSet reports whether any source gives the setting.
func (r *resolver) isSet(field string) bool {
	_, set := r.origins[field]
	return set
}

// isWrong reports whether a setting's value has already been complained about,
// so that comparing it with others would only add noise.
func (r *resolver) isWrong(field string) bool {
	origin := r.origins[field]
	return slices.ContainsFunc(r.problems, func(e *Error) bool {
		return e.Field == field || origin.field != "" && e.Field == origin.field
	})
}

// isWhole reports whether every item of a list was readable, so that something
// can be missing in it.
func (r *resolver) isWhole(field string, read []netip.Prefix) bool {
	return len(r.origins[field].items) == len(read)
}

// isWrongIn reports whether anything in a list has been complained about, so that
// nobody knows all of it.
func (r *resolver) isWrongIn(list string) bool {
	return slices.ContainsFunc(r.problems, func(e *Error) bool {
		return e.Field == list || strings.HasPrefix(e.Field, list+"[")
	})
}

// origin is where the setting was given, or where it could be: for a key that
// an item of a list lacks, at the item.
func (r *resolver) origin(field string) given {
	if origin, set := r.origins[field]; set {
		return origin
	}
	section, _, _ := cutLast(field)
	return given{place: place{field, cmp.Or(r.file.items[field], r.file.items[section])}}
}

// places are the origins without the values, some of which are secrets.
func (r *resolver) places() map[string]place {
	places := make(map[string]place, len(r.origins))
	for field, origin := range r.origins {
		places[field] = origin.place
	}
	return places
}

// complain adds an error about the setting, at the place where it was given.
func (r *resolver) complain(field, value, problem, remedy string) {
	at := r.origin(field)
	r.problems = append(r.problems, &Error{
		Field: at.field, Line: at.line, Value: value, Problem: problem, Remedy: remedy,
	})
}

func (r *resolver) warn(field, problem string, arguments ...any) {
	r.warnings = append(r.warnings, Warning{
		Field:   r.origin(field).field,
		Problem: fmt.Sprintf(problem, arguments...),
	})
}
