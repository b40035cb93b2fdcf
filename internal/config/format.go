package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"
)

// format is how a setting is written: a description for people, and a reader
// that stores the value or says what is wrong with it. The errors it returns
// have no Field yet, and no Value unless it differs from the text as given.
type format struct {
	describe string
	list     bool
	read     func(items []string) []*Error
}

// scalar is the format of a setting with one value.
func scalar(describe string, read func(text string) *Error) format {
	return format{describe: describe, read: func(items []string) []*Error {
		for _, text := range items {
			if problem := read(text); problem != nil {
				return []*Error{problem}
			}
		}
		return nil
	}}
}

func boolean(into *bool) format {
	return scalar("`true` or `false`", func(text string) *Error {
		value, err := strconv.ParseBool(text)
		if err != nil {
			return &Error{Problem: "is neither true nor false", Remedy: "write true or false"}
		}
		*into = value
		return nil
	})
}

func whole(into *int, least, most int) format {
	bounds := fmt.Sprintf("%d to %d", least, most)
	return scalar("whole number, "+bounds, func(text string) *Error {
		value, err := strconv.Atoi(text)
		if err != nil {
			return &Error{Problem: "is not a whole number", Remedy: "give a number from " + bounds}
		}
		if value < least || value > most {
			return &Error{Problem: "is out of bounds", Remedy: "give a number from " + bounds}
		}
		*into = value
		return nil
	})
}

func percentage(into *int) format {
	return scalar("percentage, `1%` to `100%`", func(text string) *Error {
		digits, isPercentage := strings.CutSuffix(text, "%")
		value, err := strconv.Atoi(digits)
		if err != nil || !isPercentage || value < 1 || value > 100 {
			return &Error{Problem: "is not a percentage from 1% to 100%", Remedy: "write it as in 25%"}
		}
		*into = value
		return nil
	})
}

// wholeSeconds reads a Go duration, or a bare number as seconds.
func wholeSeconds(into *time.Duration, least, most time.Duration) format {
	bounds := fmt.Sprintf("%v to %v", least, most)
	return scalar("duration in whole seconds (`15s` or `15`), "+bounds, func(text string) *Error {
		value, err := time.ParseDuration(text)
		if _, numeric := strconv.Atoi(text); numeric == nil {
			value, err = time.ParseDuration(text + "s")
		}
		switch {
		case err != nil:
			return &Error{Problem: "is not a duration", Remedy: "write it as in 15s, from " + bounds}
		case value < least || value > most:
			return &Error{Problem: "is out of bounds", Remedy: "give a duration from " + bounds}
		case value%time.Second != 0:
			return &Error{Problem: "is not a number of whole seconds", Remedy: "round it to seconds, from " + bounds}
		}
		*into = value
		return nil
	})
}

// atLeast reads a Go duration with a lower bound only.
func atLeast(into *time.Duration, least time.Duration) format {
	return scalar(fmt.Sprintf("duration, `%v` or more", least), func(text string) *Error {
		value, err := time.ParseDuration(text)
		if err != nil || value < least {
			return &Error{
				Problem: "is not a duration of at least " + least.String(),
				Remedy:  "give a longer one, such as 1m",
			}
		}
		*into = value
		return nil
	})
}

// oneOf reads one of a few words. Those in later are known words that this
// version can't honor.
func oneOf[T ~string](into *T, choices []T, later ...T) format {
	names := make([]string, len(choices))
	for i, choice := range choices {
		names[i] = string(choice)
	}
	remedy := "use " + strings.Join(names, " or ")
	return scalar("`"+strings.Join(names, "`, `")+"`", func(text string) *Error {
		for _, choice := range choices {
			if text == string(choice) {
				*into = choice
				return nil
			}
		}
		for _, word := range later {
			if text == string(word) {
				return &Error{Problem: "is not in this version", Remedy: remedy}
			}
		}
		return &Error{Problem: "is not a known value", Remedy: remedy}
	})
}

func isControl(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }

// name reads an ID or a name that the cloud knows.
func name(into *string) format {
	return scalar("ID or name", func(text string) *Error {
		if strings.TrimSpace(text) != text || strings.ContainsFunc(text, isControl) {
			return &Error{
				Problem: "has spaces around it or control characters in it",
				Remedy:  "write the ID or the name alone",
			}
		}
		*into = text
		return nil
	})
}

var wordPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// word reads a name out of a list that the cloud may extend at any time, so
// only its form is checked.
func word(into *string, example string) format {
	return scalar("name, such as `"+example+"`", func(text string) *Error {
		if !wordPattern.MatchString(text) {
			return &Error{
				Problem: "is not a name in lower-case letters, digits and dashes",
				Remedy:  "use a name such as " + example,
			}
		}
		*into = text
		return nil
	})
}

const longestPoolName = 63

// poolName reads a name that is good for a key of a ConfigMap and for labels.
func poolName(into *string) format { return dnsLabel(into, "edge") }

// dnsLabel reads what Kubernetes takes as the name of a namespace or a Service.
func dnsLabel(into *string, example string) format {
	return scalar("name, such as `"+example+"`", func(text string) *Error {
		if !wordPattern.MatchString(text) || len(text) > longestPoolName {
			return &Error{
				Problem: "is not a name in lower-case letters, digits and dashes",
				Remedy:  "use at most 63 of them, with a letter or digit at both ends",
			}
		}
		*into = text
		return nil
	})
}

// dnsLabels reads one or more names.
func dnsLabels(into *[]string) format {
	return format{describe: "list of names, such as `[shop, blog]`", list: true, read: func(items []string) []*Error {
		var problems []*Error
		if len(items) == 0 {
			problems = append(problems, &Error{Problem: "is empty", Remedy: "write at least one name"})
		}
		for _, item := range items {
			var name string
			if found := dnsLabel(&name, "").read([]string{item}); len(found) > 0 {
				found[0].Value = item
				problems = append(problems, found...)
				continue
			}
			*into = append(*into, name)
		}
		return problems
	}}
}

// labelSelector reads what kubectl's --selector takes.
func labelSelector(into *labels.Selector, example, forAll string) format {
	return scalar("label selector, such as `"+example+"`", func(text string) *Error {
		if strings.TrimSpace(text) == "" {
			return &Error{Problem: "is empty", Remedy: forAll}
		}
		selector, err := labels.Parse(text)
		if err != nil {
			return &Error{
				Problem: fmt.Sprintf("is not a label selector: %v", err),
				Remedy:  "write one as for kubectl's --selector, such as " + example,
				Cause:   err,
			}
		}
		*into = selector
		return nil
	})
}

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// labelValue reads what has to be a label's value, in the cloud or of a Node:
// the rules are the same. https://docs.hetzner.cloud/reference/cloud#labels
func labelValue(into *string) format {
	return scalar("label value", func(text string) *Error {
		if !labelPattern.MatchString(text) {
			return &Error{
				Problem: "can't be the value of a label",
				Remedy:  "use at most 63 letters, digits, dashes, underscores and dots, with a letter or digit at both ends",
			}
		}
		*into = text
		return nil
	})
}

// baseURL reads the base of an HTTP API, its version path included.
func baseURL(into *string) format {
	return absoluteURL(into, "URL with its version path", "scheme, host and version path, such as "+defaultEndpoint, func(path string) (problem, remedy string) {
		if strings.Trim(path, "/") == "" {
			return "lacks the version path", "append it, as in %s/v1"
		}
		return "", ""
	})
}

// hostURL reads the base of an HTTP API that needs no path.
func hostURL(into *string, example string) format {
	return absoluteURL(into, "URL", "scheme and host, such as "+example, func(string) (problem, remedy string) { return "", "" })
}

// absoluteURL reads a URL without anything that could be a secret. check judges its
// path; a %s in its remedy stands for the URL.
func absoluteURL(into *string, describe, parts string, check func(path string) (problem, remedy string)) format {
	return scalar(describe, func(text string) *Error {
		problem := &Error{Remedy: "give " + parts}
		if strings.ContainsAny(text, "@?#") {
			problem.Value = redacted
			problem.Problem = "holds credentials, a query or a fragment (not shown, it might be a secret)"
			return problem
		}
		parsed, err := url.Parse(text)
		switch {
		case err != nil:
			problem.Problem = "is not a URL"
		case parsed.Scheme != "https" && parsed.Scheme != "http", parsed.Hostname() == "":
			problem.Problem = "is not an absolute http or https URL"
		default:
			base := strings.TrimRight(text, "/")
			wrong, remedy := check(parsed.Path)
			if wrong == "" {
				*into = base
				return nil
			}
			problem.Problem, problem.Remedy = wrong, fmt.Sprintf(remedy, base)
		}
		return problem
	})
}

// onePrefix reads a single IP prefix.
func onePrefix(into *netip.Prefix) format {
	return scalar("prefix", func(text string) *Error {
		prefix, problem := readPrefix(text)
		*into = prefix
		return problem
	})
}

// prefixes reads a list of IP prefixes.
func prefixes(into *[]netip.Prefix) format {
	return format{describe: "list of prefixes", list: true, read: func(items []string) []*Error {
		var problems []*Error
		for _, item := range items {
			prefix, problem := readPrefix(strings.TrimSpace(item))
			if problem != nil {
				problems = append(problems, problem)
				continue
			}
			*into = append(*into, prefix)
		}
		return problems
	}}
}

// ipv6Prefixes takes prefixes of that family alone.
func ipv6Prefixes(into *[]netip.Prefix) format {
	return format{describe: "list of IPv6 prefixes", list: true, read: func(items []string) []*Error {
		var read []netip.Prefix
		problems := prefixes(&read).read(items)
		for _, p := range read {
			if p.Addr().Is4() {
				problems = append(problems, &Error{Value: p.String(), Problem: "is no IPv6 prefix", Remedy: "write IPv6 prefixes, such as 2001:db8::/48"})
			}
		}
		*into = append(*into, read...)
		return problems
	}}
}

func readPrefix(text string) (netip.Prefix, *Error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, &Error{
			Value:   text,
			Problem: "is not a prefix",
			Remedy:  "write address and length, such as 10.244.0.0/16 or fd00:10:244::/56",
		}
	case prefix.Addr().Is4In6():
		return netip.Prefix{}, &Error{
			Value:   text,
			Problem: "is an IPv4 prefix in IPv6 notation",
			Remedy:  "write it in IPv4 notation, such as 10.244.0.0/16",
		}
	case prefix != prefix.Masked():
		return netip.Prefix{}, &Error{
			Value:   text,
			Problem: "has address bits beyond its length",
			Remedy:  "write " + prefix.Masked().String(),
		}
	}
	return prefix, nil
}

// upTo limits a list to so many items.
func upTo(most int, f format) format {
	f.describe = fmt.Sprintf("%s, at most %d", f.describe, most)
	read := f.read
	f.read = func(items []string) []*Error {
		if len(items) > most {
			return []*Error{{
				Problem: fmt.Sprintf("has %d items", len(items)),
				Remedy:  fmt.Sprintf("give at most %d, one of each address family", most),
			}}
		}
		return read(items)
	}
	return f
}
