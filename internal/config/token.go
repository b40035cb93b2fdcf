package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/underlay-ccm/underlay/internal/secret"
)

const redacted = secret.Redacted

// Token is the secret that authenticates to the cloud.
type Token struct{ secret.Text }

// NewToken checks the text of a token from a variable or a file: surrounding white space is
// dropped, and the rest must be printable ASCII without spaces, because it becomes part of an
// HTTP header. The error never contains the token.
func NewToken(text string) (Token, error) {
	token, problem := parseToken(text)
	if problem != nil {
		return Token{}, problem
	}
	return token, nil
}

func parseToken(text string) (Token, *Error) {
	text = strings.Trim(text, " \t\r\n")
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case text == "":
		return Token{}, &Error{
			Field: "token", Problem: "the token is empty",
			Remedy: "put in an API token of the project, with permission to read and write",
		}
	case strings.ContainsFunc(text, odd):
		return Token{}, &Error{
			Field: "token", Value: redacted,
			Problem: "the token holds a space, a control character or one outside ASCII",
			Remedy:  "copy the token again, alone and on one line",
		}
	}
	return Token{secret.New(text)}, nil
}

// TokenSource is the source of the token: a file or a fixed value.
type TokenSource struct {
	// File is the absolute path of the token, which may change at any time; empty if it is fixed.
	File string

	field    string
	fixed    Token
	readFile func(string) ([]byte, error)
}

// TokenFile returns the source of a program without a configuration: a file of a flag or variable.
func TokenFile(field, path string) TokenSource {
	return TokenSource{File: path, field: field, readFile: os.ReadFile}
}

// String returns the name of the source, never the token.
func (s TokenSource) String() string {
	if s.File != "" {
		return s.field + " " + s.File
	}
	return s.field
}

// Read returns the current token of the file, or the fixed token. Its error is an *Error.
func (s TokenSource) Read() (Token, error) {
	if s.File == "" {
		return s.fixed, nil
	}
	token, wrong := readSecret(place{field: s.field}, s.File, "token", s.readFile, parseToken)
	if wrong != nil {
		return Token{}, wrong
	}
	return token, nil
}

// readSecret returns the secret that the file currently holds. It checks only the form.
func readSecret(
	at place, path, what string,
	readFile func(string) ([]byte, error), parse func(string) (Token, *Error),
) (Token, *Error) {
	content, err := readFile(path)
	problem := &Error{
		Problem: fmt.Sprintf("the %s's file can't be read: %v", what, err),
		Remedy:  "name a file that exists and that this process may read", Cause: err,
	}
	if err == nil {
		var found Token
		if found, problem = parse(string(content)); problem == nil {
			return found, nil
		}
		problem.Problem += " in the file"
	}
	problem.Field, problem.Line, problem.Value = at.field, at.line, path
	return Token{}, problem
}

// secret selects the source of a secret and reports whether there is one. A file named by key in
// the file of --cloud-config takes precedence over both variables; of these, the secret itself
// (direct) takes precedence over a file's name, as in the Hetzner cloud controller manager.
func (l *loader) secret(
	key, direct, what string, path *string, fixed *Token, parse func(string) (Token, *Error),
) bool {
	switch {
	case !l.isSet(key):
		return l.isSet(direct) || l.isWrong(direct) || l.isWrong(key) || l.unread
	case l.isSet(direct) && !l.inFile(key):
		l.warn(key, "is not used, %s outranks it", direct)
		*path = ""
		return true
	case l.isSet(direct):
		l.warn(direct, "is not used, %s outranks it", key)
	}
	*fixed = Token{}
	if l.isWrong(key) {
		return true
	}
	if _, wrong := readSecret(l.origin(key), *path, what, l.readFile, parse); wrong != nil {
		l.problems = append(l.problems, wrong)
	}
	return true
}

func (l *loader) token() TokenSource {
	const key, direct = "tokenFile", "HCLOUD_TOKEN"
	if l.Provider == Metal {
		return TokenSource{}
	}
	s := TokenSource{File: l.Token.File, fixed: l.Token.fixed, field: direct, readFile: l.readFile}
	if !l.onNode && !l.secret(key, direct, "token", &s.File, &s.fixed, parseToken) {
		l.complain(direct, "", "no token is given",
			"put a token of the project into HCLOUD_TOKEN, or into a file named by tokenFile or HCLOUD_TOKEN_FILE")
	}
	if s.File != "" {
		s.field = l.origin(key).field
	}
	return s
}
