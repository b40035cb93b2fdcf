package inside

import (
	_ "embed"
	"encoding/json"
	"strings"
	"time"
)

// Lifetime is how long the program runs if nobody stops it before.
const Lifetime = time.Hour

// UserDataLimit is how many bytes of user data a server can have.
const UserDataLimit = 32 << 10

//go:embed program.py
var program string

// settings is the line of the program that [UserData] fills in.
const settings = "SETTINGS = {}\n"

// UserData is the program as user data of a server, or as a script that root runs by hand: it ends
// by itself after lifetime. It holds the server's keys.
func UserData(c Credentials, lifetime time.Duration) string {
	// Strings and numbers are written in JSON as in Python.
	filled, _ := json.Marshal(map[string]any{
		"server": c.server, "certificate": string(c.certificate), "private": string(c.private),
		"key": c.key, "port": Port, "lifetime": int(lifetime.Seconds()),
	})
	return strings.Replace(tabbed(program), settings, "SETTINGS = "+string(filled)+"\n", 1)
}

// tabbed is a program that is indented by tabs, which need less of the room that there is.
func tabbed(program string) string {
	var b strings.Builder
	for line := range strings.Lines(program) {
		text := strings.TrimLeft(line, " ")
		indent := len(line) - len(text)
		b.WriteString(strings.Repeat("\t", indent/4) + strings.Repeat(" ", indent%4) + text)
	}
	return b.String()
}
