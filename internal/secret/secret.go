// Package secret keeps tokens and passwords from being printed: fmt, loggers and encoders show
// "[redacted]" in their place, and only [Text.Reveal] tells them.
//
// It knows no rules of what a good token or password is, and must never put one into an error.
package secret

import (
	"encoding"
	"fmt"
	"log/slog"
)

// Redacted stands wherever a secret would.
const Redacted = "[redacted]"

// Text is a secret text. The zero value is none. A type that embeds it prints as it does.
type Text struct {
	// A closure, because fmt, deep printers and encoders that reach an
	// unexported field by reflection cannot call its methods, but can't see
	// into a function either.
	reveal func() string
}

var (
	_ fmt.Formatter          = Text{}
	_ fmt.Stringer           = Text{}
	_ fmt.GoStringer         = Text{}
	_ encoding.TextMarshaler = Text{}
	_ slog.LogValuer         = Text{}
)

// New makes a text secret.
func New(text string) Text { return Text{reveal: func() string { return text }} }

// Reveal returns the secret itself, for whom it authenticates to and nobody else; "" of none.
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
