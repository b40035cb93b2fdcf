// Package secret prevents tokens and passwords from being printed: fmt, loggers and encoders
// print "[redacted]" instead, and only [Text.Reveal] returns them.
//
// It has no rules for valid tokens or passwords, and must never include one in an error.
package secret

import (
	"encoding"
	"fmt"
	"log/slog"
)

// Redacted replaces a secret in all output.
const Redacted = "[redacted]"

// Text is a secret text; the zero value is empty. A type that embeds it prints as it does.
type Text struct {
	// A closure, because fmt, deep printers and encoders that reach an unexported field by
	// reflection don't call its methods, but can't read a closure's variables either.
	reveal func() string
}

var (
	_ fmt.Formatter          = Text{}
	_ fmt.Stringer           = Text{}
	_ fmt.GoStringer         = Text{}
	_ encoding.TextMarshaler = Text{}
	_ slog.LogValuer         = Text{}
)

// New returns a Text that holds text.
func New(text string) Text { return Text{reveal: func() string { return text }} }

// Reveal returns the secret itself, or "" for the zero value. Use it only to authenticate.
func (t Text) Reveal() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// Format prints [redacted] for every verb and flag.
func (Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Redacted)) }

// String returns [redacted].
func (Text) String() string { return Redacted }

// GoString returns [redacted].
func (Text) GoString() string { return Redacted }

// MarshalText returns [redacted]; JSON and YAML encoders use it.
func (Text) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// LogValue returns [redacted].
func (Text) LogValue() slog.Value { return slog.StringValue(Redacted) }
