package robot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/internal/requests"
)

const (
	// blockTime is how long the service blocks an address, and how long we
	// assume that it counts its failures.
	blockTime = 10 * time.Minute
	// mostFailures within that time are safe; one more blocks.
	mostFailures = 2
	// judgedWithin is how long the service takes at most to look at a request's
	// login. What follows may take longer: routing a failover address takes a
	// minute.
	judgedWithin = 10 * time.Second
	// refusedFor is how long refused credentials are not tried again. They are
	// tried some time, because the service refuses correct ones too while it
	// blocks the address for what another program behind it did.
	refusedFor = time.Hour
)

// outcome is what the end of a request tells of its login.
type outcome int

const (
	// untold: nothing. The request certainly never reached the service, or
	// something in front of the service answered.
	untold outcome = iota
	// lost: no answer came, so the service may have refused the login.
	lost
	accepted
	refused
)

// login decides when credentials may be sent, so that the service never counts a
// third failed login within blockTime. A request is in doubt while the service
// may refuse its login and we don't know yet.
//
//   - Failures within blockTime and requests in doubt are mostFailures together at
//     most, whatever the credentials.
//   - Credentials that were never accepted go alone: while their request is in
//     doubt, no other is, and it is until it has ended. Without an answer it
//     counts as a failure, unless it certainly never reached the service.
//   - Credentials that were accepted may be in doubt with several requests, each
//     until it ends or judgedWithin has passed, so that failover addresses which
//     move together don't wait for each other. They are trusted until an answer
//     refuses them: without one nothing counts, and a late one when it comes.
//   - Refused credentials are not tried again for refusedFor.
type login struct {
	read  func() (Credentials, error)
	queue *requests.Queue // whose lock guards what follows

	inDoubt int         // requests, with those whose turn has just begun
	alone   bool        // the one in doubt has credentials that were never accepted
	proven  Credentials // the last that were accepted; none: each request goes alone
	refused []refusal
	failed  []time.Time // logins within blockTime, sorted
}

// refusal is of credentials that are not tried before a time.
type refusal struct {
	credentials Credentials
	until       time.Time
}

func newLogin(read func() (Credentials, error)) *login {
	l := &login{read: read}
	l.queue = requests.NewQueue(l)
	return l
}

// Wait lets a request begin its turn if there is room for one more in doubt. What
// can't be sent at all begins it too, to be told so.
func (l *login) Wait(_ requests.Priority, now time.Time) time.Duration {
	l.forget(now)
	most := mostFailures - len(l.failed)
	if l.proven.Reveal() == "" {
		most = min(most, 1)
	}
	if len(l.failed) >= mostFailures || !l.alone && l.inDoubt < most {
		return 0
	}
	return time.Minute // the end of somebody's doubt comes first
}

// Spend takes in that a turn begins.
func (l *login) Spend(time.Time) { l.inDoubt++ }

// forget drops what is too old to matter.
func (l *login) forget(now time.Time) {
	l.failed = slices.DeleteFunc(l.failed, func(t time.Time) bool { return now.Sub(t) >= blockTime })
	l.refused = slices.DeleteFunc(l.refused, func(r refusal) bool { return !now.Before(r.until) })
}

// enter returns a turn when the request may be sent with the turn's credentials.
// Its end must be called.
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

// judge says why credentials may not be tried, whoever else is in doubt.
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

// begin returns the turn of a request with these credentials, or nil if it has to
// wait again for those that are in doubt.
func (l *login) begin(c Credentials, now time.Time) *turn {
	proven := l.proven.same(c)
	if !proven && l.inDoubt > 1 {
		// From now on each goes alone, so that nobody begins a turn, and comes
		// here again, before the others are out of doubt.
		l.proven = Credentials{}
		return nil
	}
	if len(l.failed)+l.inDoubt > mostFailures { // one has failed since this turn began
		return nil
	}
	t := &turn{login: l, credentials: c, proven: proven, began: now, inDoubt: true}
	if proven {
		t.timer = time.AfterFunc(judgedWithin, func() { l.queue.Change(func(time.Time) { t.leave() }) })
	}
	l.alone = !proven
	return t
}

// turn is one request's time in doubt.
type turn struct {
	login       *login
	credentials Credentials
	proven      bool // the credentials were, when it began
	began       time.Time
	timer       *time.Timer // ends the doubt; nil: the request's end does

	inDoubt bool // guarded as the login is
}

// leave ends the doubt, if there still is one.
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

// end takes in that the request has ended.
func (t *turn) end(o outcome) {
	if t.timer != nil {
		t.timer.Stop()
	}
	l := t.login
	l.queue.Change(func(now time.Time) {
		late := !t.inDoubt // others may have found out more meanwhile
		t.leave()
		switch {
		case o == refused:
			l.fail(now)
			l.refused = append(l.refused, refusal{t.credentials, now.Add(refusedFor)})
			if l.proven.same(t.credentials) {
				l.proven = Credentials{}
			}
		case o == lost && !t.proven:
			// The service may come to it after the caller gave up.
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
