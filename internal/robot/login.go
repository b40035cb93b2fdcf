package robot

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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
//   - No request begins after mostFailures within blockTime, and with fewer, one at a time is in
//     doubt.
//   - Credentials that were never accepted are sent by one request at a time, which is in doubt
//     until it ends. Without a response it counts as a failure, unless it certainly never reached
//     the service.
//   - Accepted credentials may have mostFailures requests in doubt, each until it ends or
//     judgedWithin has passed, so that concurrent moves of failover addresses don't wait for each
//     other. They are trusted until refused: a missing response doesn't count, a late one when it
//     arrives.
//   - Refused credentials are not tried again for refusedFor.
type login struct {
	read  func() (Credentials, error)
	slots *semaphore.Weighted // mostFailures, held by the requests in doubt

	mu      sync.Mutex  // guards the fields below
	proven  Credentials // last accepted credentials
	refused []refusal
	failed  []time.Time // failed logins within blockTime, sorted
}

// refusal blocks credentials until a time.
type refusal struct {
	credentials Credentials
	until       time.Time
}

func newLogin(read func() (Credentials, error)) *login {
	return &login{read: read, slots: semaphore.NewWeighted(mostFailures)}
}

// turn is the time in which a request is in doubt.
type turn struct {
	login       *login
	credentials Credentials
	proven      bool // the credentials were accepted before
	began       time.Time
	slots       int64       // held
	timer       *time.Timer // ends the doubt; nil: the end of the request does
}

func (t *turn) leave() { t.login.slots.Release(t.slots) }

// enter returns a turn when the request may be sent with the turn's credentials. The caller must
// call its end.
func (l *login) enter(ctx context.Context) (*turn, error) {
	l.mu.Lock()
	l.forget(time.Now())
	alone := l.proven.Reveal() == "" || len(l.failed) > 0
	l.mu.Unlock()
	for ; ; alone = true {
		t := &turn{login: l, slots: 1}
		if alone {
			t.slots = mostFailures
		}
		if err := l.slots.Acquire(ctx, t.slots); err != nil {
			return nil, fmt.Errorf("waiting for the login of another request: %w", err)
		}
		began, err := l.begin(t)
		if began {
			return t, nil
		}
		t.leave()
		if err != nil {
			return nil, err
		}
	}
}

// begin begins a turn, unless it must be alone and isn't.
func (l *login) begin(t *turn) (began bool, err error) {
	if t.credentials, err = l.read(); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.began = time.Now()
	if err := l.judge(t.credentials, t.began); err != nil {
		return false, err
	}
	t.proven = l.proven.same(t.credentials)
	if t.slots < mostFailures && (!t.proven || len(l.failed) > 0) {
		return false, nil
	}
	if t.proven {
		t.timer = time.AfterFunc(judgedWithin, t.leave)
	}
	return true, nil
}

func (l *login) forget(now time.Time) {
	l.failed = slices.DeleteFunc(l.failed, func(t time.Time) bool { return now.Sub(t) >= blockTime })
	l.refused = slices.DeleteFunc(l.refused, func(r refusal) bool { return !now.Before(r.until) })
}

// judge returns why the credentials must not be tried.
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

func (t *turn) end(o outcome) {
	inDoubt := t.timer == nil || t.timer.Stop()
	l, now := t.login, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case o == refused:
		l.fail(now)
		l.refused = append(l.refused, refusal{t.credentials, now.Add(refusedFor)})
		if l.proven.same(t.credentials) {
			l.proven = Credentials{}
		}
	case o == lost && !t.proven:
		// The service may process the request after the caller gave up.
		l.fail(t.began.Add(max(judgedWithin, now.Sub(t.began))))
	case o == accepted && inDoubt: // otherwise newer outcomes may have been recorded since
		l.proven = t.credentials
	}
	if inDoubt {
		t.leave()
	}
}

func (l *login) fail(at time.Time) {
	l.failed = append(l.failed, at)
	slices.SortFunc(l.failed, time.Time.Compare)
}

// noConnection reports whether a request failed before it had a connection.
func noConnection(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial" ||
		errors.As(err, new(*net.DNSError)) || errors.As(err, new(*tls.CertificateVerificationError))
}
