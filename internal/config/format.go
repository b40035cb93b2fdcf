package config

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// format is the notation of a setting: a description for users, and a reader that stores the
// value or returns its mistakes. Its errors have no Field yet, and a Value only if it differs
// from the given text.
type format struct {
	describe string
	list     bool // has any number of items, otherwise exactly one
	secret   bool // a wrong value is not repeated
	read     func(items []string) Errors
}

func wrong(problem, remedy string) *Error { return &Error{Problem: problem, Remedy: remedy} }

func wrongIf(is bool, problem, remedy string) *Error {
	if is {
		return wrong(problem, remedy)
	}
	return nil
}

func one[T any](into *T, describe string, parse func(text string) (T, *Error)) format {
	return format{describe: describe, read: func(items []string) Errors {
		value, wrong := parse(items[0])
		if wrong != nil {
			return Errors{wrong}
		}
		*into = value
		return nil
	}}
}

func many[T any](into *[]T, describe string, parse func(text string) (T, *Error)) format {
	return format{describe: describe, list: true, read: func(items []string) (all Errors) {
		for _, item := range items {
			value, wrong := parse(strings.TrimSpace(item))
			if wrong != nil {
				wrong.Value = cmp.Or(wrong.Value, item)
				all = append(all, wrong)
				continue
			}
			*into = append(*into, value)
		}
		return all
	}}
}

// sized limits the number of items.
func sized(least, most int, of string, f format) format {
	read := f.read
	f.read = func(items []string) Errors {
		switch n := len(items); {
		case n < least:
			return Errors{wrong("is empty", "write at least one "+of)}
		case n > most:
			return Errors{wrong(fmt.Sprintf("has %d items", n), fmt.Sprintf("give at most %d", most))}
		}
		return read(items)
	}
	return f
}

// hidden returns a format without repeated values, since a wrong value might be a secret.
func hidden(f format) format {
	f.secret = true
	return f
}

func boolean(into *bool) format {
	return one(into, "`true` or `false`", func(text string) (bool, *Error) {
		value, err := strconv.ParseBool(text)
		return value, wrongIf(err != nil, "is neither true nor false", "write true or false")
	})
}

func whole[T int | uint16](into *T, least, most int) format {
	bounds := fmt.Sprintf("%d to %d", least, most)
	return one(into, "whole number, "+bounds, func(text string) (T, *Error) {
		value, err := strconv.Atoi(text)
		return T(value), wrongIf(err != nil || value < least || value > most,
			"is not a whole number within the bounds", "give a number from "+bounds)
	})
}

func percentage(into *int) format {
	return one(into, "percentage, `1%` to `100%`", func(text string) (int, *Error) {
		digits, isPercentage := strings.CutSuffix(text, "%")
		value, err := strconv.Atoi(digits)
		return value, wrongIf(err != nil || !isPercentage || value < 1 || value > 100,
			"is not a percentage from 1% to 100%", "write it as in 25%")
	})
}

func wholeSeconds(into *time.Duration, least, most time.Duration) format {
	bounds := fmt.Sprintf("%v to %v", least, most)
	describe := "duration in whole seconds (`15s` or `15`), " + bounds
	return one(into, describe, func(text string) (time.Duration, *Error) {
		value, err := time.ParseDuration(text)
		if _, numeric := strconv.Atoi(text); numeric == nil {
			value, err = time.ParseDuration(text + "s")
		}
		return value, wrongIf(
			err != nil || value < least || value > most || value%time.Second != 0,
			"is not a duration in whole seconds within the bounds",
			"write one as in 15s, rounded to seconds, from "+bounds)
	})
}

func atLeast(into *time.Duration, least time.Duration) format {
	describe := fmt.Sprintf("duration, `%v` or more", least)
	return one(into, describe, func(text string) (time.Duration, *Error) {
		value, err := time.ParseDuration(text)
		return value, wrongIf(err != nil || value < least,
			fmt.Sprintf("is not a duration of at least %v", least), "give a longer one, such as 1m")
	})
}

func oneOf[T ~string](into *T, choices ...T) format {
	names := make([]string, len(choices))
	for i, choice := range choices {
		names[i] = string(choice)
	}
	return one(into, "`"+strings.Join(names, "`, `")+"`", func(text string) (T, *Error) {
		return T(text), wrongIf(!slices.Contains(names, text),
			"is not a known value", "use "+strings.Join(names, " or "))
	})
}

// switches reads one of a few words, each of which sets a boolean, or none if that is nil.
func switches(names []string, into ...*bool) format {
	var name string
	f := oneOf(&name, names...)
	read := f.read
	f.read = func(items []string) Errors {
		wrong := read(items)
		if i := slices.Index(names, name); i >= 0 && into[i] != nil {
			*into[i] = true
		}
		return wrong
	}
	return f
}

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || r == unicode.ReplacementChar
	})
}

// text reads texts that ok accepts.
func text(into *string, describe string, ok func(string) bool, problem, remedy string) format {
	return one(into, describe, func(text string) (string, *Error) {
		return text, wrongIf(!ok(text), problem, remedy)
	})
}

func name(into *string) format {
	ok := func(s string) bool { return s == strings.TrimSpace(s) && !hasControl(s) }
	return text(into, "ID or name", ok, "has spaces around it or control characters in it",
		"write the ID or the name alone")
}

func parseLabel(example string) func(string) (string, *Error) {
	return func(text string) (string, *Error) {
		return text, wrongIf(len(validation.IsDNS1123Label(text)) > 0,
			"is not a name in lower-case letters, digits and dashes",
			"use at most 63 of them, with a letter or digit at both ends, such as "+example)
	}
}

// dnsLabel reads the name of a namespace or a Service, or a name from a list that the cloud may
// extend. It is also a valid key of a ConfigMap.
func dnsLabel(into *string, example string) format {
	return one(into, "name, such as `"+example+"`", parseLabel(example))
}

func dnsLabels(into *[]string) format {
	const describe = "list of names, such as `[shop, blog]`"
	return sized(1, math.MaxInt, "name", many(into, describe, parseLabel("shop")))
}

// nodeName reads the name of a Node.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
func nodeName(into *string) format {
	ok := func(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }
	return text(into, "name of a Node", ok, "can't be the name of a Node", "use at most 253 "+
		"lower-case letters, digits, dashes and dots, with a letter or digit at both ends")
}

// labelValue reads the value of a label in the cloud or of a Node: the rules are the same.
// https://docs.hetzner.cloud/reference/cloud#labels
func labelValue(into *string) format {
	ok := func(s string) bool { return s != "" && len(validation.IsValidLabelValue(s)) == 0 }
	return text(into, "label value", ok, "can't be the value of a label", "use at most 63 letters, "+
		"digits, dashes, underscores and dots, with a letter or digit at both ends")
}

// labelSelector reads the syntax of kubectl's --selector.
func labelSelector(into *labels.Selector, example, all string) format {
	describe := "label selector, such as `" + example + "`"
	return one(into, describe, func(text string) (labels.Selector, *Error) {
		selector, err := labels.Parse(text)
		if strings.TrimSpace(text) == "" {
			return nil, wrong("is empty", "remove the key if "+all)
		}
		return selector, wrongIf(err != nil, fmt.Sprintf("is not a label selector: %v", err),
			"write one as for kubectl's --selector, such as "+example)
	})
}

// apiURL reads the base URL of an HTTP API without parts that could be a secret.
func apiURL(into *string, example string) format {
	describe, remedy := "URL", "give scheme and host, such as "+example
	versioned := path.Base(example) == "v1"
	if versioned {
		describe = "URL with its version path"
		remedy = "give scheme, host and version path, such as " + example
	}
	return one(into, describe, func(text string) (string, *Error) {
		parsed, err := url.Parse(text)
		base := strings.TrimRight(text, "/")
		switch {
		case strings.ContainsAny(text, "@?#"):
			return "", &Error{
				Value:   redacted,
				Problem: "holds credentials, a query or a fragment (not shown, it might be a secret)",
				Remedy:  remedy,
			}
		case err != nil || !slices.Contains([]string{"http", "https"}, parsed.Scheme),
			parsed.Hostname() == "":
			return "", wrong("is not an absolute http or https URL", remedy)
		case versioned && strings.Trim(parsed.Path, "/") == "":
			return "", wrong("lacks the version path", "append it, as in "+base+"/v1")
		}
		return base, nil
	})
}

// secretPath reads the path of a secret's file. Errors never contain it: it may be the secret.
func secretPath(into *string, what, example string) format {
	ok := func(s string) bool { return path.IsAbs(s) && !hasControl(s) }
	return hidden(text(into, "absolute path of a file", ok,
		"is not an absolute path (not shown, it might be the "+what+" itself)",
		"give the path of a file that holds the "+what+", such as "+example))
}

func secretText(into *Secret, what string) format {
	into.what = what
	return hidden(one(&into.Fixed, "secret", func(text string) (Token, *Error) {
		return parseSecret(text, what)
	}))
}

// prefixes reads one prefix of each family.
func prefixes(into *[]netip.Prefix) format {
	const describe = "list of prefixes, at most 2"
	return sized(0, 2, "prefix", many(into, describe, parsePrefix))
}

func parsePrefix(text string) (netip.Prefix, *Error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return prefix, wrong("is not a prefix",
			"write address and length, such as 10.244.0.0/16 or fd00:10:244::/56")
	case prefix.Addr().Is4In6():
		return prefix, wrong("is an IPv4 prefix in IPv6 notation",
			"write it in IPv4 notation, such as 10.244.0.0/16")
	}
	return prefix, wrongIf(prefix != prefix.Masked(), "has address bits beyond its length",
		"write "+prefix.Masked().String())
}

func parseIPv6Prefix(text string) (netip.Prefix, *Error) {
	prefix, problem := parsePrefix(text)
	if problem == nil && prefix.Addr().Is4() {
		problem = wrong("is no IPv6 prefix", "write IPv6 prefixes, such as 2001:db8::/48")
	}
	return prefix, problem
}

// parseAddress reads an address that a single machine can have.
func parseAddress(text string) (netip.Addr, *Error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, wrong("is not an address",
			"write it without a length, such as 192.0.2.1 or 2001:db8::1")
	}
	return addr, wrongIf(!addr.IsGlobalUnicast() || addr.Is4In6() || addr.Zone() != "",
		"is no address that other machines could reach one machine by",
		"give the address of the machine's uplink")
}
