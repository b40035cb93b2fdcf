package robot

import (
	"context"
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
	// authenticatedAfter is when a request that is still under way has passed
	// the login: routing a failover address takes a minute.
	authenticatedAfter = 10 * time.Second
)

// login lets one request at a time find out whether its credentials are good, so
// that however many wait, wrong ones are sent once.
type login struct {
	queue *requests.Queue // whose lock guards what follows
	read  func() (Credentials, error)

	taken   bool        // a request is in doubt
	turn    int         // its number
	refused Credentials // not to be tried again
	failed  []time.Time // logins, within the time of a block
}

func newLogin(read func() (Credentials, error)) *login {
	l := &login{read: read}
	l.queue = requests.NewQueue(l)
	return l
}

// Wait is how long to wait for one's turn: until somebody's ends.
func (l *login) Wait(requests.Priority, time.Time) time.Duration {
	if l.taken {
		return time.Minute
	}
	return 0
}

// Spend takes in that somebody's turn begins.
func (l *login) Spend(time.Time) {
	l.taken = true
	l.turn++
}

// enter returns the credentials of a request whose turn it is. done ends its
// turn, and says whether they were refused; it may be called once, and must be.
func (l *login) enter(ctx context.Context) (c Credentials, done func(refused bool), err error) {
	turn, err := l.queue.Wait(ctx)
	if err != nil {
		return Credentials{}, nil, fmt.Errorf("waiting for the login of another request: %w", err)
	}
	leave := func(time.Time) {
		if l.turn == turn { // else it ended before, and this is another's
			l.taken = false
		}
	}
	if c, err = l.read(); err == nil {
		l.queue.Change(func(now time.Time) { err = l.judge(c, now) })
	}
	if err != nil {
		l.queue.Change(leave)
		return Credentials{}, nil, err
	}
	timer := time.AfterFunc(authenticatedAfter, func() { l.queue.Change(leave) })
	return c, func(refused bool) {
		timer.Stop()
		l.queue.Change(func(now time.Time) {
			if refused {
				l.refused = c
				l.failed = append(l.failed, now)
			}
			leave(now)
		})
	}, nil
}

// judge says whether credentials may be tried.
func (l *login) judge(c Credentials, now time.Time) error {
	if c.reveal == nil {
		return fmt.Errorf("there are no credentials for the Robot web service")
	}
	if l.refused.reveal != nil && l.refused.same(c) {
		return &CredentialsError{}
	}
	l.failed = slices.DeleteFunc(l.failed, func(t time.Time) bool { return now.Sub(t) >= blockTime })
	if len(l.failed) >= mostFailures {
		return &CredentialsError{Until: l.failed[0].Add(blockTime)}
	}
	return nil
}
