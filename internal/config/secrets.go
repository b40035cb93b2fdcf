package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/underlay-ccm/underlay/internal/secret"
)

const redacted = secret.Redacted

// Token is a secret that authenticates to the cloud or to Robot.
type Token struct{ secret.Text }

// NewToken checks the text of a token of the cloud from a variable or a file: surrounding white
// space is dropped, and the rest must be printable ASCII without spaces, because it becomes part
// of an HTTP header. The error never contains the token.
func NewToken(text string) (Token, error) {
	found, wrong := parseSecret(text, "token")
	if wrong != nil {
		wrong.Field = "token"
		return Token{}, wrong
	}
	return found, nil
}

// parseSecret reads a token of the cloud, or a user or password of Robot: a user has no colon,
// and neither has a line break.
func parseSecret(text, what string) (Token, *Error) {
	text = strings.TrimSpace(text)
	remedy := "put in that of the web service, as Robot's settings have it; " +
		"it is not the customer's login"
	odd := func(r rune) bool { return r == '\r' || r == '\n' || r == ':' && what == "user" }
	if what == "token" {
		remedy = "put in an API token of the project, with permission to read and write"
		odd = func(r rune) bool { return r <= ' ' || r > '~' }
	}
	switch {
	case text == "":
		return Token{}, wrong("the "+what+" is empty", remedy)
	case strings.ContainsFunc(text, odd):
		return Token{}, &Error{
			Value: redacted, Problem: "the " + what + " has a character that none has",
			Remedy: "copy it again, alone and on one line",
		}
	}
	return Token{secret.New(text)}, nil
}

// Secret is the source of a secret: a file or a fixed value.
type Secret struct {
	// File is the absolute path of the secret, which may change at any time; empty if it is fixed.
	File  string
	Fixed Token

	field, what string
	readFile    func(string) ([]byte, error) // by default os.ReadFile
}

// TokenFile returns the source of a program without a configuration: a file of a flag or variable.
func TokenFile(field, path string) Secret {
	return Secret{File: path, field: field, what: "token"}
}

// String returns the name of the source, never the secret.
func (s Secret) String() string {
	if s.File != "" {
		return s.field + " " + s.File
	}
	return s.field
}

// Read returns the current secret of the file, or the fixed one. Its error is an *Error.
func (s Secret) Read() (Token, error) {
	if s.File == "" {
		return s.Fixed, nil
	}
	readFile := s.readFile
	if readFile == nil {
		readFile = os.ReadFile
	}
	content, err := readFile(s.File)
	if err != nil {
		return Token{}, &Error{
			Field: s.field, Value: s.File, Cause: err,
			Problem: fmt.Sprintf("the %s's file can't be read: %v", s.what, err),
			Remedy:  "name a file that exists and that this process may read",
		}
	}
	found, wrong := parseSecret(string(content), s.what)
	if wrong != nil {
		wrong.Field, wrong.Value = s.field, s.File
		wrong.Problem += " in the file"
		return Token{}, wrong
	}
	return found, nil
}

// secret selects the source of a secret and reports whether there is one. A file named by key in
// the file of --cloud-config takes precedence over both variables; of these, the secret itself
// (direct) takes precedence over a file's name, as in the Hetzner cloud controller manager.
func (l *loader) secret(key, direct string, s *Secret) bool {
	s.field, s.readFile = l.origin(key), l.readFile
	switch {
	case !l.isSet(key):
		s.field = direct
		return l.isSet(direct) || l.isWrong(key)
	case l.isSet(direct) && !l.inFile(key):
		l.warn(key, "is not used, %s outranks it", direct)
		s.File, s.field = "", direct
		return true
	case l.isSet(direct):
		l.warn(direct, "is not used, %s outranks it", key)
	}
	s.Fixed = Token{}
	var wrong *Error
	if _, err := s.Read(); errors.As(err, &wrong) {
		l.problems = append(l.problems, wrong)
	}
	return true
}

func (l *loader) token() Secret {
	const key, direct = "tokenFile", "HCLOUD_TOKEN"
	s := l.Token
	if l.Provider == Metal || l.onNode {
		return Secret{}
	}
	if !l.secret(key, direct, &s) {
		l.complain(direct, "", "no token is given", "put a token of the project into HCLOUD_TOKEN, "+
			"or into a file named by tokenFile or HCLOUD_TOKEN_FILE")
	}
	return s
}

const defaultRobotEndpoint = "https://robot-ws.your-server.de"

const (
	robotEnabled      = "ROBOT_ENABLED"
	robotUser         = "ROBOT_USER"
	robotPassword     = "ROBOT_PASSWORD"
	robotUserFile     = "robot.userFile"
	robotPasswordFile = "robot.passwordFile"
)

// robot checks that both credentials are given or neither.
func (l *loader) robot() Robot {
	r := l.Robot
	inFile := l.inFile(robotUserFile) || l.inFile(robotPasswordFile)
	switch {
	case l.Provider == Metal || l.onNode:
		return Robot{}
	case inFile && l.isSet(robotEnabled) && !r.Enabled:
		l.warn(robotEnabled, "has no effect: the file's robot section switches Robot on")
	case !inFile && !r.Enabled:
		for _, unused := range []string{robotUserFile, robotPasswordFile, robotUser, robotPassword} {
			if l.isSet(unused) {
				l.warn(unused, "has no effect without %s=true", robotEnabled)
			}
		}
		return Robot{}
	}
	r.Enabled = true
	l.robotSecret(robotUserFile, robotUser, inFile, &r.User)
	l.robotSecret(robotPasswordFile, robotPassword, inFile, &r.Password)
	return r
}

func (l *loader) robotSecret(key, direct string, inFile bool, s *Secret) {
	const neither = "is missing, and neither goes without the other"
	switch {
	case l.secret(key, direct, s):
	case inFile:
		l.complain(key, "", "the "+s.what+"'s file "+neither,
			"name the file that holds the "+s.what+", or remove both")
	default:
		l.complain(direct, "", "the "+s.what+" "+neither, "put it into "+direct+
			", or into a file named by "+key+" or "+direct+"_FILE; or unset "+robotEnabled)
	}
}
