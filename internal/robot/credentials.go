package robot

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/secret"
)

// Credentials are the web service's user and password, joined by a colon.
type Credentials struct{ secret.Text }

// NewCredentials validates a user and a password, and trims white space around them, as in
// files. The error never contains them.
func NewCredentials(user, password string) (Credentials, error) {
	user, password = strings.TrimSpace(user), strings.TrimSpace(password)
	switch {
	case user == "":
		return Credentials{}, fmt.Errorf("user: is empty; put in the web service user of Robot's settings, not the customer's login")
	case password == "":
		return Credentials{},
			fmt.Errorf("password: is empty; put in the password of the web service user")
	case strings.ContainsAny(user, ":\r\n"):
		return Credentials{},
			fmt.Errorf("user: holds a colon or a line break; copy it again, alone and on one line")
	case strings.ContainsAny(password, "\r\n"):
		return Credentials{},
			fmt.Errorf("password: holds a line break; copy it again, alone and on one line")
	}
	return Credentials{secret.New(user + ":" + password)}, nil
}

func (c Credentials) same(other Credentials) bool { return c.Reveal() == other.Reveal() }

// Authorize adds the credentials to a request; empty ones change nothing.
func (c Credentials) Authorize(r *http.Request) {
	if user, password, some := strings.Cut(c.Reveal(), ":"); some {
		r.SetBasicAuth(user, password)
	}
}

// CredentialsError means that a request was refused, or not sent, because of its credentials.
type CredentialsError struct {
	// Until is when they are tried again, unless they change before.
	Until time.Time
	// Any means that no credentials are tried before Until, not even changed ones.
	Any bool
}

func (e *CredentialsError) Error() string {
	until := e.Until.UTC().Format(time.RFC3339)
	if e.Any {
		return fmt.Sprintf("two logins at the Robot web service were rejected or got no response, and a third could block this address; the next try is after %s", until)
	}
	return fmt.Sprintf("the Robot web service refuses the user and the password; correct them: they are tried again when they change, or after %s in case that another program of this address had it blocked", until)
}
