package robotsim

import (
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"time"
)

// login holds the failed logins of a client address.
type login struct {
	failed  []time.Time
	blocked time.Time // end of the block
}

// authenticate checks the credentials, and counts a failed login for the client's address. A
// successful login does not reset the count: whether it does at the real service is not
// documented. dropped reports that the connection must end without a reply.
func (s *Simulator) authenticate(r *http.Request, now time.Time) (refused *Error, dropped bool) {
	from := remote(r)
	l := s.logins[from]
	if l == nil {
		l = &login{}
		s.logins[from] = l
	}
	if now.Before(l.blocked) {
		return s.block()
	}
	if s.accepts(r) {
		return nil, false
	}
	l.failed = slices.DeleteFunc(l.failed, func(t time.Time) bool { return now.Sub(t) >= s.opts.BlockTime })
	l.failed = append(l.failed, now)
	if len(l.failed) >= s.opts.FailedLogins && s.opts.FailedLogins != Unlimited {
		l.blocked, l.failed = now.Add(s.opts.BlockTime), nil
	}
	return s.unauthorized(), false
}

func (s *Simulator) unauthorized() *Error {
	refused := refusal(codeUnauthorized, "Unauthorized")
	if s.opts.ForbiddenLogin {
		refused.Status = http.StatusForbidden
	}
	return refused
}

func (s *Simulator) block() (refused *Error, dropped bool) {
	switch s.opts.Blocked {
	case BlockedForbidden:
		return &Error{Status: http.StatusForbidden, Message: "Forbidden"}, false
	case BlockedDropped:
		return nil, true
	default:
		return s.unauthorized(), false
	}
}

func (s *Simulator) accepts(r *http.Request) bool {
	user, password, given := r.BasicAuth()
	if !given || user == "" {
		return false
	}
	if s.user == "" && s.password == "" {
		return true
	}
	same := subtle.ConstantTimeCompare([]byte(user), []byte(s.user)) & subtle.ConstantTimeCompare([]byte(password), []byte(s.password))
	return same == 1
}

// remote returns the client address; in process there is only one.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
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
