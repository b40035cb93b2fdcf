package robot

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/internal/requests"
)

const (
	// blockTime is how long the service blocks an address, and the assumed interval in which it
	// counts failures.
	blockTime = 10 * time.Minute
	// mostFailures within blockTime are safe; another failure blocks the address.
	mostFailures = 2
	// judgedWithin bounds the time until the service checks a request's login. The rest may take
	// longer: routing a failover address takes a minute.
	judgedWithin = 10 * time.Second
	// refusedFor is how long refused credentials are not tried again. They must be tried some
	// time: while the service blocks the address because of another program, it refuses correct
	// credentials too.
	refusedFor = time.Hour
)

// outcome is the result of a request's login.
type outcome int

const (
	// unsent is no result: the request never reached the service, or only a proxy in front of it.
	unsent outcome = iota
	// lost is no response: the service may have refused the login.
	lost
	accepted
	refused
)

// login decides when credentials may be sent, so that the service never counts a third failed
// login within blockTime. A request is in doubt while the service may still refuse its login.
//
//   - Failures within blockTime and requests in doubt are at most mostFailures together, for all
//     credentials.
//   - Credentials that were never accepted are sent by one request at a time, which is in doubt
//     until it ends. Without a response it counts as a failure, unless it certainly never reached
//     the service.
//   - Accepted credentials may have several requests in doubt, each until it ends or judgedWithin
//     has passed, so that concurrent moves of failover addresses don't wait for each other. They
//     are trusted until refused: a missing response doesn't count, a late one when it arrives.
//   - Refused credentials are not tried again for refusedFor.
type login struct {
	read  func() (Credentials, error)
	queue *requests.Queue // its lock guards the fields below

	inDoubt int         // requests in doubt, including those just admitted
	alone   bool        // the request in doubt has credentials that were never accepted
	proven  Credentials // last accepted credentials; empty: one request at a time
	refused []refusal
	failed  []time.Time // failed logins within blockTime, sorted
}

// refusal blocks credentials until a time.
type refusal struct {
	credentials Credentials
	until       time.Time
}

func newLogin(read func() (Credentials, error)) *login {
	l := &login{read: read}
	l.queue = requests.NewQueue(l)
	return l
}

// Wait implements requests.Budget. It admits a request if another one may be in doubt, or if no
// request may be sent, so that enter returns the reason.
func (l *login) Wait(_ requests.Priority, now time.Time) time.Duration {
	l.forget(now)
	most := mostFailures - len(l.failed)
	if l.proven.Reveal() == "" {
		most = min(most, 1)
	}
	if len(l.failed) >= mostFailures || !l.alone && l.inDoubt < most {
		return 0
	}
	return time.Minute // until a request in doubt ends
}

// Spend implements requests.Budget.
func (l *login) Spend(time.Time) { l.inDoubt++ }

func (l *login) forget(now time.Time) {
	l.failed = slices.DeleteFunc(l.failed, func(t time.Time) bool { return now.Sub(t) >= blockTime })
	l.refused = slices.DeleteFunc(l.refused, func(r refusal) bool { return !now.Before(r.until) })
}

// enter returns a turn when the request may be sent with the turn's credentials. The caller must
// call its end.
func (l *login) enter(ctx context.Context) (*turn, error) {
	for {
		if _, err := l.queue.Wait(ctx); err != nil {
			return nil, fmt.Errorf("waiting for the login of another request: %w", err)
		}
		c, err := l.read()
		var t *turn
		l.queue.Change(func(now time.Time) {
			if err == nil {
				err = l.judge(c, now)
			}
			if err == nil {
				t = l.begin(c, now)
			}
			if t == nil {
				l.inDoubt--
			}
		})
		if t != nil || err != nil {
			return t, err
		}
	}
}

// judge returns why the credentials must not be tried, regardless of requests in doubt.
func (l *login) judge(c Credentials, now time.Time) error {
	if c.Reveal() == "" {
		return errors.New("there are no credentials for the Robot web service")
	}
	l.forget(now)
	for _, r := range l.refused {
		if r.credentials.same(c) {
			return &CredentialsError{Until: r.until}
		}
	}
	if n := len(l.failed); n >= mostFailures {
		return &CredentialsError{Until: l.failed[n-mostFailures].Add(blockTime), Any: true}
	}
	return nil
}

// begin returns the turn of a request with these credentials, or nil if it must wait for
// requests in doubt.
func (l *login) begin(c Credentials, now time.Time) *turn {
	proven := l.proven.same(c)
	if !proven && l.inDoubt > 1 {
		// From now on, Wait admits one request at a time, so that requests don't reach this
		// point again before the current ones are out of doubt.
		l.proven = Credentials{}
		return nil
	}
	if len(l.failed)+l.inDoubt > mostFailures { // a login failed since this request was admitted
		return nil
	}
	t := &turn{login: l, credentials: c, proven: proven, began: now, inDoubt: true}
	if proven {
		t.timer = time.AfterFunc(judgedWithin, func() { l.queue.Change(func(time.Time) { t.leave() }) })
	}
	l.alone = !proven
	return t
}

// turn is the time in which a request is in doubt.
type turn struct {
	login       *login
	credentials Credentials
	proven      bool // the credentials were accepted before
	began       time.Time
	timer       *time.Timer // ends the doubt; nil: the end of the request does

	inDoubt bool // guarded by the login's lock
}

func (t *turn) leave() {
	if !t.inDoubt {
		return
	}
	t.inDoubt = false
	t.login.inDoubt--
	if !t.proven {
		t.login.alone = false
	}
}

func (t *turn) end(o outcome) {
	if t.timer != nil {
		t.timer.Stop()
	}
	l := t.login
	l.queue.Change(func(now time.Time) {
		late := !t.inDoubt // newer outcomes may have been recorded since
		t.leave()
		switch {
		case o == refused:
			l.fail(now)
			l.refused = append(l.refused, refusal{t.credentials, now.Add(refusedFor)})
			if l.proven.same(t.credentials) {
				l.proven = Credentials{}
			}
		case o == lost && !t.proven:
			// The service may process the request after the caller gave up.
			l.fail(later(now, t.began.Add(judgedWithin)))
		case o == accepted && !late:
			l.proven = t.credentials
		}
	})
}

func (l *login) fail(at time.Time) {
	l.failed = append(l.failed, at)
	slices.SortFunc(l.failed, time.Time.Compare)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// noConnection reports whether a request failed before it had a connection.
func noConnection(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && (failed.Op == "dial" || failed.Op == "proxyconnect") ||
		errors.As(err, new(*net.DNSError)) || errors.As(err, new(*tls.CertificateVerificationError))
}
