package config

import (
	"fmt"
	"strings"

	"github.com/underlay-ccm/underlay/internal/secret"
)

const defaultRobotEndpoint = "https://robot-ws.your-server.de"

// The settings of the Robot web service that are compared with each other.
const (
	robotEnabled      = "ROBOT_ENABLED"
	robotUser         = "ROBOT_USER"
	robotPassword     = "ROBOT_PASSWORD"
	robotUserFile     = "robot.userFile"
	robotPasswordFile = "robot.passwordFile"
)

// Robot configures the web service of dedicated servers.
type Robot struct {
	// Enabled implies both User and Password.
	Enabled bool
	// Endpoint is its base URL, without a trailing slash.
	Endpoint       string
	User, Password RobotSecret
	// ForwardInternalIPs: without a network, the private addresses of dedicated
	// servers are those that their kubelets were given.
	ForwardInternalIPs bool
}

// RobotSecret is where the user or the password comes from.
type RobotSecret struct {
	// File is the absolute path of the file that holds it, and may hold another
	// one tomorrow; empty: it is Fixed.
	File  string
	Fixed Token
}

// robotDraft is the section as it is written.
type robotDraft struct {
	enabled, forward       bool
	endpoint               string
	user, password         Token
	userFile, passwordFile string
}

// robotSettings say how dedicated servers are asked about.
func robotSettings(d *robotDraft) []setting {
	return []setting{
		{
			key: robotUserFile, env: "ROBOT_USER_FILE", format: secretPath(&d.userFile, "user", "/etc/underlay/robot/user"), secret: true,
			meaning: "File that holds the user of the [Robot web service](https://robot.hetzner.com/doc/webservice/en.html), for clusters with dedicated servers; read again when it changes. The key switches Robot on. `ROBOT_USER` outranks `ROBOT_USER_FILE`, the key outranks both. One user for one cluster: the quotas are the account's.",
		},
		{
			key: robotPasswordFile, env: "ROBOT_PASSWORD_FILE", format: secretPath(&d.passwordFile, "password", "/etc/underlay/robot/password"), secret: true,
			meaning: "File that holds the user's password, as above.",
		},
		{
			key: "robot.endpoint", format: hostURL(&d.endpoint, defaultRobotEndpoint), fallback: defaultRobotEndpoint,
			meaning: "Base of the web service; only resource paths are appended.",
		},
		{
			key: "robot.forwardInternalIPs", env: "ROBOT_FORWARD_INTERNAL_IPS", format: boolean(&d.forward), fallback: "true",
			meaning: "Without `network`: the private address that a dedicated server's kubelet was given (`--node-ip`) becomes the Node's internal one. With `network` that is so anyway, if the address lies in the network's range and is nobody else's.",
		},
		{
			env: robotEnabled, format: boolean(&d.enabled), secret: true,
			meaning: "`true`: Robot is asked about dedicated servers, with the credentials of the variables below. Credentials of the file need it not.",
		},
		{
			env: robotUser, format: robotSecret(&d.user, "user", ":\r\n"), secret: true,
			meaning: "The user of the Robot web service. The file can't hold it.",
		},
		{
			env: robotPassword, format: robotSecret(&d.password, "password", "\r\n"), secret: true,
			meaning: "The user's password. The file can't hold it.",
		},
	}
}

// robotSecret reads the user or the password itself, in which some characters can't be.
func robotSecret(into *Token, what, never string) format {
	return scalar("secret", func(text string) *Error {
		found, problem := parseRobotSecret(text, what, never)
		*into = found
		return problem
	})
}

func parseRobotSecret(text, what, never string) (Token, *Error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return Token{}, &Error{Value: redacted, Problem: "the " + what + " is empty", Remedy: "put in that of the web service, as Robot's settings have it; it is not the customer's login"}
	case strings.ContainsAny(text, never):
		return Token{}, &Error{Value: redacted, Problem: "the " + what + " has a character that none has", Remedy: "copy it again, alone and on one line"}
	}
	return Token{secret.New(text)}, nil
}

// robot checks the credentials: both or none.
func (r *resolver) robot(d *draft, readFile func(string) ([]byte, error)) Robot {
	if d.provider == Metal || r.onNode {
		return Robot{}
	}
	draft := d.robot
	inFile := r.origin(robotUserFile).line > 0 || r.origin(robotPasswordFile).line > 0
	switch on := draft.enabled && !r.isWrong(robotEnabled); {
	case inFile && r.isSet(robotEnabled) && !on:
		r.warn(robotEnabled, "has no effect: the file's robot section switches Robot on")
	case !inFile && !on:
		for _, unused := range []string{robotUserFile, robotPasswordFile, robotUser, robotPassword} {
			if r.isSet(unused) && !r.isWrong(robotEnabled) {
				r.warn(unused, "has no effect without %s=true", robotEnabled)
			}
		}
		return Robot{}
	}
	return Robot{
		Enabled:            true,
		Endpoint:           draft.endpoint,
		ForwardInternalIPs: draft.forward,
		User:               r.robotSource(robotUserFile, draft.userFile, robotUser, draft.user, inFile, readFile),
		Password:           r.robotSource(robotPasswordFile, draft.passwordFile, robotPassword, draft.password, inFile, readFile),
	}
}

// robotSource picks the source of the user or the password, as token does.
func (r *resolver) robotSource(key, path, direct string, fixed Token, inFile bool, readFile func(string) ([]byte, error)) RobotSecret {
	origin, what, never := r.origin(key), "user", ":\r\n"
	if direct == robotPassword {
		what, never = "password", "\r\n"
	}
	switch {
	case r.isSet(direct) && r.isSet(key) && origin.line == 0:
		r.warn(key, "is not used, %s outranks it", direct)
	case r.isSet(key):
		if r.isSet(direct) {
			r.warn(direct, "is not used, %s outranks it", key)
		}
		if !r.isWrong(key) {
			r.readRobotFile(origin, path, what, never, readFile)
		}
		return RobotSecret{File: path}
	case r.isSet(direct) || r.isWrong(direct) || r.unread:
	case inFile:
		r.complain(key, "", "the "+what+"'s file is missing, and neither goes without the other", "name the file that holds the "+what+", or remove both")
	default:
		r.complain(direct, "", "the "+what+" is missing, and neither goes without the other",
			"put it into "+direct+", or into a file named by "+key+" or "+direct+"_FILE; or unset "+robotEnabled)
	}
	return RobotSecret{Fixed: fixed}
}

// readRobotFile checks what a file holds now. Never that it is right: only Robot
// knows.
func (r *resolver) readRobotFile(origin given, path, what, never string, readFile func(string) ([]byte, error)) {
	content, err := readFile(path)
	problem := &Error{
		Problem: fmt.Sprintf("the %s's file can't be read: %v", what, err),
		Remedy:  "name a file that exists and that this process may read", Cause: err,
	}
	if err == nil {
		if _, problem = parseRobotSecret(string(content), what, never); problem == nil {
			return
		}
		problem.Problem += " in the file"
	}
	problem.Field, problem.Line, problem.Value = origin.field, origin.line, path
	r.problems = append(r.problems, problem)
}
