package robotsim

import (
	"crypto/subtle"
	"net/http"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// The number of failed logins that block an address, and for how long, as documented.
const failedLogins, blockTime = 3, 10 * time.Minute

// login holds the failed logins of a client address.
type login struct {
	failed  []time.Time
	blocked time.Time // end of the block
}

// authenticate checks the credentials, and counts a failed login for the client's address. A
// successful login does not reset the count: whether it does at the real service is not
// documented. dropped reports that the connection must end without a reply.
func (s *Simulator) authenticate(r *http.Request, now time.Time) (refused *Error, dropped bool) {
	from := httpsim.Remote(r)
	l := s.logins[from]
	if l == nil {
		l = &login{}
		s.logins[from] = l
	}
	unauthorized := refusal(codeUnauthorized, "Unauthorized")
	if s.opts.ForbiddenLogin {
		unauthorized.Status = http.StatusForbidden
	}
	switch blocked := now.Before(l.blocked); {
	case blocked && s.opts.Blocked == BlockedForbidden:
		return &Error{Status: http.StatusForbidden, Message: "Forbidden"}, false
	case blocked:
		return unauthorized, s.opts.Blocked == BlockedDropped
	case s.accepts(r):
		return nil, false
	}
	l.failed = slices.DeleteFunc(l.failed, func(t time.Time) bool { return now.Sub(t) >= blockTime })
	l.failed = append(l.failed, now)
	if len(l.failed) >= failedLogins {
		l.blocked, l.failed = now.Add(blockTime), nil
	}
	return unauthorized, false
}

func (s *Simulator) accepts(r *http.Request) bool {
	user, password, given := r.BasicAuth()
	if !given || user == "" {
		return false
	}
	if s.user == "" && s.password == "" {
		return true
	}
	return subtle.ConstantTimeCompare([]byte(user), []byte(s.user)) == 1 &&
		subtle.ConstantTimeCompare([]byte(password), []byte(s.password)) == 1
}

// Blocked returns the blocked addresses, sorted. In-process requests have an empty address.
func (s *Simulator) Blocked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for from, l := range s.logins {
		if time.Now().Before(l.blocked) {
			found = append(found, from)
		}
	}
	slices.Sort(found)
	return found
}
