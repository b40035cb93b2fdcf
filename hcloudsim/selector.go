package hcloudsim

import (
	"fmt"
	"slices"
	"strings"
)

// selector lists the requirements of a label selector. The empty selector matches everything.
type selector []requirement

type requirement struct {
	key      string
	operator operator
	values   []string
}

type operator int

const (
	exists operator = iota
	absent
	isIn
	isNotIn // also matches if the key is absent
)

func (s selector) matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(r requirement) bool { return !r.holds(labels) })
}

func (r requirement) holds(labels map[string]string) bool {
	value, present := labels[r.key]
	switch r.operator {
	case absent:
		return !present
	case isIn:
		return present && slices.Contains(r.values, value)
	case isNotIn:
		return !present || !slices.Contains(r.values, value)
	}
	return present
}

// parseSelector parses k, !k, k=v, k==v, k!=v, k in (v,…) and k notin (v,…), joined by commas.
func parseSelector(text string) (selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var out selector
	for _, part := range splitRequirements(text) {
		r, err := parseRequirement(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// splitRequirements splits at commas outside of parentheses.
func splitRequirements(text string) []string {
	var parts []string
	depth, start := 0, 0
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth <= 0:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

func parseRequirement(part string) (requirement, error) {
	r := requirement{key: part}
	if name, ok := strings.CutPrefix(part, "!"); ok {
		r.key, r.operator = strings.TrimSpace(name), absent
	} else if key, list, ok := cutSet(part, "notin"); ok {
		r.key, r.operator, r.values = key, isNotIn, list
	} else if key, list, ok := cutSet(part, "in"); ok {
		r.key, r.operator, r.values = key, isIn, list
	} else if key, value, ok := cutPair(part, "!="); ok {
		r.key, r.operator, r.values = key, isNotIn, []string{value}
	} else if key, value, ok := cutPair(part, "=="); ok {
		r.key, r.operator, r.values = key, isIn, []string{value}
	} else if key, value, ok := cutPair(part, "="); ok {
		r.key, r.operator, r.values = key, isIn, []string{value}
	}
	if !validKey(r.key) {
		return r, fmt.Errorf("'%s' is no label key", r.key)
	}
	for _, value := range r.values {
		if !validValue(value) {
			return r, fmt.Errorf("'%s' is no label value", value)
		}
	}
	return r, nil
}

// cutSet parses "key word (a, b)".
func cutSet(part, word string) (key string, values []string, ok bool) {
	head, list, ok := strings.Cut(part, "(")
	if !ok || !strings.HasSuffix(list, ")") {
		return "", nil, false
	}
	fields := strings.Fields(head)
	if len(fields) != 2 || fields[1] != word {
		return "", nil, false
	}
	for value := range strings.SplitSeq(strings.TrimSuffix(list, ")"), ",") {
		values = append(values, strings.TrimSpace(value))
	}
	return fields[0], values, true
}

func cutPair(part, sign string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(part, sign)
	return strings.TrimSpace(key), strings.TrimSpace(value), ok
}
