package config

import (
	"encoding"
	"fmt"
	"log/slog"
	"path"
	"strings"
)

// redacted stands wherever a secret would.
const redacted = "[redacted]"

// Token is the secret that authenticates to the cloud. It prints as
// [redacted] everywhere; only Reveal tells it.
type Token struct {
	// A closure, because fmt, deep printers and encoders that reach an
	// unexported field by reflection cannot call its methods, but can't see
	// into a function either.
	reveal func() string
}

var (
	_ fmt.Formatter          = Token{}
	_ fmt.Stringer           = Token{}
	_ fmt.GoStringer         = Token{}
	_ encoding.TextMarshaler = Token{}
	_ slog.LogValuer         = Token{}
)

// NewToken checks a token as it may come from a variable or a file: white
// space around it is dropped, and what remains must be printable ASCII without
// spaces, since it becomes part of an HTTP header. The error never
// holds the token.
func NewToken(text string) (Token, error) {
	token, problem := parseToken(text)
	if problem != nil {
		return Token{}, problem
	}
	return token, nil
}

func parseToken(text string) (Token, *Error) {
	text = strings.Trim(text, " \t\r\n")
	if text == "" {
		return Token{}, &Error{
			Field:   "token",
			Problem: "the token is empty",
			Remedy:  "put in an API token of the project, with permission to read and write",
		}
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return Token{}, &Error{
				Field:   "token",
				Value:   redacted,
				Problem: "the token holds a space, a control character or one outside ASCII",
				Remedy:  "copy the token again, alone and on one line",
			}
		}
	}
	return Token{reveal: func() string { return text }}, nil
}

// Reveal returns the secret itself, for the header of a request and nothing
// else. The zero Token reveals the empty string.
func (t Token) Reveal() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// Format prints [redacted] for every verb and flag.
func (Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// String returns [redacted].
func (Token) String() string { return redacted }

// GoString returns [redacted].
func (Token) GoString() string { return redacted }

// MarshalText returns [redacted]; JSON and YAML encoders use it.
func (Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns [redacted].
func (Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// TokenSource is where the token comes from.
type TokenSource struct {
	// File is the absolute path of the file that holds the token, and may
	// hold another one tomorrow; empty when the token is fixed.
	File string

	field    string
	fixed    Token
	readFile func(string) ([]byte, error)
}

// String names the source, not the token.
func (s TokenSource) String() string {
	if s.File != "" {
		return s.field + " " + s.File
	}
	return s.field
}

// Read returns the token: the file's present one, or the fixed one. Its
// error is an *Error.
func (s TokenSource) Read() (Token, error) {
	token, problem := s.read()
	if problem != nil {
		return Token{}, problem
	}
	return token, nil
}

func (s TokenSource) read() (Token, *Error) {
	if s.File == "" {
		return s.fixed, nil
	}
	content, err := s.readFile(s.File)
	if err != nil {
		return Token{}, &Error{
			Field:   s.field,
			Value:   s.File,
			Problem: fmt.Sprintf("the token file can't be read: %v", err),
			Remedy:  "name a file that exists and that this process may read",
			Cause:   err,
		}
	}
	token, problem := parseToken(string(content))
	if problem != nil {
		problem.Field, problem.Value = s.field, s.File
		problem.Problem += " in the file"
		return Token{}, problem
	}
	return token, nil
}

// secretPath reads the path of a file that holds a secret. Anything else is not
// repeated in the error: it may well be the secret itself, put into the wrong place.
func secretPath(into *string, what, example string) format {
	return scalar("absolute path of a file", func(text string) *Error {
		if !path.IsAbs(text) || strings.ContainsFunc(text, isControl) {
			return &Error{
				Value:   redacted,
				Problem: "is not an absolute path (not shown, it might be the " + what + " itself)",
				Remedy:  "give the path of a file that holds the " + what + ", such as " + example,
			}
		}
		*into = text
		return nil
	})
}

// secretToken reads the token itself.
func secretToken(into *Token) format {
	return scalar("secret", func(text string) *Error {
		token, problem := parseToken(text)
		*into = token
		return problem
	})
}
