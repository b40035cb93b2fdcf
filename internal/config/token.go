package config

import (
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/underlay-ccm/underlay/internal/secret"
)

// redacted stands wherever a secret would.
const redacted = secret.Redacted

// Token is the secret that authenticates to the cloud.
type Token struct{ secret.Text }

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
	return Token{secret.New(text)}, nil
}

// TokenSource is where the token comes from.
type TokenSource struct {
	// File is the absolute path of the file that holds the token, and may
	// hold another one tomorrow; empty when the token is fixed.
	File string

	field    string
	fixed    Token
	readFile func(string) ([]byte, error)
}

// TokenFile is the source of a program without a configuration: the file that a flag or a variable
// names.
func TokenFile(field, path string) TokenSource {
	return TokenSource{File: path, field: field, readFile: os.ReadFile}
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
