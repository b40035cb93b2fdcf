package robotsim

import (
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"time"
)

// login is what an address has tried.
type login struct {
	failed  []time.Time
	blocked time.Time // until then
}

// authenticate lets a request in, or counts a failed login against its address.
// A success forgives nothing: whether it does at the real service is not
// documented. The second value says that the address gets no answer at all.
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

// unauthorized answers a failed login.
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

// remote is the address that a request comes from; in process there is but one.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// Blocked returns the addresses that are blocked now, sorted; in process the
// only one is empty.
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
