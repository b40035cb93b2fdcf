package config

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is a mistake in the configuration.
type Error struct {
	// Field is the source of the value: a flag (--cluster-cidr), a key of the file
	// (routes.limit) or a variable (HCLOUD_TOKEN).
	Field string
	// Value is the given text; empty if none, [redacted] if it is or might be a secret.
	Value   string
	Problem string
	Remedy  string
	Cause   error
}

// Error returns a single line.
func (e *Error) Error() string {
	value := ""
	switch e.Value {
	case "":
	case redacted:
		value = " " + redacted
	default:
		value = " " + quote(e.Value)
	}
	return e.Field + value + ": " + oneLine(e.Problem) + "; " + oneLine(e.Remedy)
}

func (e *Error) Unwrap() error { return e.Cause }

// Errors holds all mistakes in the configuration: those in the form of the file, then those in
// values in the order of the reference, then contradictions between values.
type Errors []*Error

// Error returns one line per mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// Warning is a valid setting that probably does not work as intended.
type Warning struct {
	Field   string
	Problem string
}

func (w Warning) String() string { return w.Field + ": " + oneLine(w.Problem) }

// shownRunes limits how much of a value a message repeats.
const shownRunes = 80

func quote(value string) string {
	if utf8.RuneCountInString(value) > shownRunes {
		value = string([]rune(value)[:shownRunes]) + "…"
	}
	return strconv.Quote(value)
}

func oneLine(text string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(text)
}
