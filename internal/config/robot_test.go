package config

import (
	"fmt"
	"strings"
	"testing"
)

const robotFiles = "robot: {userFile: /u, passwordFile: /p}"

func robotSetup(file string, variables vars) setup {
	return setup{file: file, env: env(variables), flags: ipv4Only(), files: fakeFiles{"/u": "#ws+user\n", "/p": tokenText + "\n", "/two": "a\nb", "/empty": " \n"}}
}

func TestRobot(t *testing.T) {
	on := vars{"ROBOT_ENABLED": "true", "ROBOT_USER": "#ws+user", "ROBOT_PASSWORD": tokenText}
	for _, c := range []struct {
		name      string
		file      string
		variables vars
		want      string // enabled, and by which source
		warnings  string
	}{
		{"nothing", "", nil, "off", ""},
		{"files", robotFiles, nil, "file file", ""},
		{"files of variables", "", vars{"ROBOT_ENABLED": "true", "ROBOT_USER_FILE": "/u", "ROBOT_PASSWORD_FILE": "/p"}, "file file", ""},
		{"variables", "", on, "fixed fixed", ""},
		{"mixed", "", vars{"ROBOT_ENABLED": "true", "ROBOT_USER": "a", "ROBOT_PASSWORD_FILE": "/p"}, "fixed file", ""},
		{"the file outranks", robotFiles, vars{"ROBOT_USER": "a", "ROBOT_PASSWORD_FILE": "/other"}, "file file", "ROBOT_USER"},
		{"the file outranks the switch", robotFiles, vars{"ROBOT_ENABLED": "false"}, "file file", "ROBOT_ENABLED"},
		{"the variable outranks its file", "", vars{"ROBOT_ENABLED": "true", "ROBOT_USER": "a", "ROBOT_USER_FILE": "/none", "ROBOT_PASSWORD_FILE": "/p"}, "fixed file", "ROBOT_USER_FILE"},
		{"not switched on", "", vars{"ROBOT_USER": "a", "ROBOT_PASSWORD": tokenText}, "off", "ROBOT_USER ROBOT_PASSWORD"},
		{"switched off", "", vars{"ROBOT_ENABLED": "false", "ROBOT_USER": "a"}, "off", "ROBOT_USER"},
	} {
		t.Run(c.name, func(t *testing.T) {
			loaded, warnings, err := load(t, robotSetup(c.file, c.variables))
			if err != nil {
				t.Fatal(err)
			}
			source := func(s Secret) string {
				switch {
				case s.File != "":
					return "file"
				case s.Fixed.Reveal() != "":
					return "fixed"
				default:
					return "none"
				}
			}
			got := "off"
			if loaded.Robot.Enabled {
				got = source(loaded.Robot.User) + " " + source(loaded.Robot.Password)
				if loaded.Robot.Endpoint != "https://robot-ws.your-server.de" || !loaded.Robot.ForwardInternalIPs {
					t.Errorf("%+v, want the defaults", loaded.Robot)
				}
			}
			if got != c.want || fields(warnings) != c.warnings {
				t.Errorf("%s, warnings %q; want %s, %q", got, fields(warnings), c.want, c.warnings)
			}
			if text := fmt.Sprintf("%v %+v %#v %v", loaded, loaded.Robot, loaded.Robot, warnings); strings.Contains(text, tokenText) {
				t.Errorf("the password is shown: %s", text)
			}
		})
	}
}

func TestMistakesWithRobot(t *testing.T) {
	file := func(text string) setup { return robotSetup("robot: {"+text+"}", nil) }
	variables := func(v vars) setup { return robotSetup("", v) }
	checkMistakes(t, []mistake{
		{"no password", file("userFile: /u"), "robot.passwordFile", "", "remove both"},
		{"no user", file("passwordFile: /p"), "robot.userFile", "", "remove both"},
		{"variables without a password", variables(vars{"ROBOT_ENABLED": "true", "ROBOT_USER": "a"}), "ROBOT_PASSWORD", "", "ROBOT_PASSWORD_FILE"},
		{"variables without a user", variables(vars{"ROBOT_ENABLED": "true", "ROBOT_PASSWORD": tokenText}), "ROBOT_USER", "", "ROBOT_USER_FILE"},
		{"no such file", file("userFile: /none, passwordFile: /p"), "robot.userFile", "/none", "exists"},
		{"empty", file("userFile: /empty, passwordFile: /p"), "robot.userFile", "/empty", "Robot's settings"},
		{"two lines", file("userFile: /u, passwordFile: /two"), "robot.passwordFile", "/two", "one line"},
		{"the password as a path", file("userFile: /u, passwordFile: " + tokenText), "robot.passwordFile", redacted, "path of a file"},
		{"a colon", variables(vars{"ROBOT_ENABLED": "true", "ROBOT_USER": "a:b", "ROBOT_PASSWORD": "c"}), "ROBOT_USER", redacted, "copy it again"},
		{"two lines in a variable", variables(vars{"ROBOT_ENABLED": "true", "ROBOT_USER": "a", "ROBOT_PASSWORD": tokenText + "\nb"}), "ROBOT_PASSWORD", redacted, "copy it again"},
		{"endpoint", file("userFile: /u, passwordFile: /p, endpoint: robot"), "robot.endpoint", "robot", "https://robot-ws.your-server.de"},
		{"forwarding", file("userFile: /u, passwordFile: /p, forwardInternalIPs: some"), "robot.forwardInternalIPs", "some", "true"},
		{"typo", file("userFiles: /u"), "robot.userFiles", "", "robot.userFile"},
	})
}

// The agent reads the same file and doesn't use this section.
func TestTheAgentNeedsNoRobot(t *testing.T) {
	files := fakeFiles{"/config": head + robotFiles + "\ninventory: [{name: a, number: 7, addresses: [10.0.1.7]}]\n"}
	node, err := LoadAgent("/config", "10.244.0.0/16", files.read)
	if err != nil || len(node.Inventory) > 0 {
		t.Errorf("inventory %v, %v; want none, which only counts without a cloud", node.Inventory, err)
	}
}
