package config

import (
	"strings"

	"github.com/underlay-ccm/underlay/internal/secret"
)

const defaultRobotEndpoint = "https://robot-ws.your-server.de"

const (
	robotEnabled      = "ROBOT_ENABLED"
	robotUser         = "ROBOT_USER"
	robotPassword     = "ROBOT_PASSWORD"
	robotUserFile     = "robot.userFile"
	robotPasswordFile = "robot.passwordFile"
)

// Robot configures the web service of dedicated servers.
type Robot struct {
	Enabled bool
	// Endpoint is the base URL without a trailing slash.
	Endpoint       string
	User, Password RobotSecret
	// ForwardInternalIPs takes private addresses from the kubelets if there is no network.
	ForwardInternalIPs bool
}

// RobotSecret is the source of the user or the password.
type RobotSecret struct {
	// File is the absolute path of the secret, read again on changes; if empty, it is Fixed.
	File  string
	Fixed Token
}

func robotSecret(into *Token, what string) format {
	return hidden(one(into, "secret", robotParser(what)))
}

// robotParser reads a user or a password: a user has no colon, and neither has a line break.
func robotParser(what string) func(string) (Token, *Error) {
	never := "\r\n"
	if what == "user" {
		never = ":\r\n"
	}
	return func(text string) (Token, *Error) {
		text = strings.TrimSpace(text)
		switch {
		case text == "":
			return Token{}, wrong("the "+what+" is empty",
				"put in that of the web service, as Robot's settings have it; it is not the customer's login")
		case strings.ContainsAny(text, never):
			return Token{}, wrong("the "+what+" has a character that none has", "copy it again, alone and on one line")
		}
		return Token{secret.New(text)}, nil
	}
}

// robot checks that both credentials are given or neither.
func (l *loader) robot() Robot {
	r := l.Robot
	inFile := l.inFile(robotUserFile) || l.inFile(robotPasswordFile)
	switch on := r.Enabled && !l.isWrong(robotEnabled); {
	case l.Provider == Metal || l.onNode:
		return Robot{}
	case inFile && l.isSet(robotEnabled) && !on:
		l.warn(robotEnabled, "has no effect: the file's robot section switches Robot on")
	case !inFile && !on:
		for _, unused := range []string{robotUserFile, robotPasswordFile, robotUser, robotPassword} {
			if l.isSet(unused) && !l.isWrong(robotEnabled) {
				l.warn(unused, "has no effect without %s=true", robotEnabled)
			}
		}
		return Robot{}
	}
	r.Enabled = true
	l.robotSecret(robotUserFile, robotUser, "user", inFile, &r.User)
	l.robotSecret(robotPasswordFile, robotPassword, "password", inFile, &r.Password)
	return r
}

func (l *loader) robotSecret(key, direct, what string, inFile bool, s *RobotSecret) {
	const neither = "is missing, and neither goes without the other"
	switch {
	case l.secret(key, direct, what, &s.File, &s.Fixed, robotParser(what)):
	case inFile:
		l.complain(key, "", "the "+what+"'s file "+neither, "name the file that holds the "+what+", or remove both")
	default:
		l.complain(direct, "", "the "+what+" "+neither, "put it into "+direct+", or into a file named by "+key+
			" or "+direct+"_FILE; or unset "+robotEnabled)
	}
}
