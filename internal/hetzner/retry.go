package hetzner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/util/wait"
)

// kind determines when a request may be repeated.
type kind int

const (
	// read may be repeated after any outcome.
	read kind = iota
	// write may be repeated only if the API did nothing.
	write
)

// enough limits how long a request is repeated. Callers have their own, slower retries.
const enough = 30 * time.Second

// retry sends a request until its result is final or enough time has passed. Temporary refusals
// (another client changes the resource, or the budget is spent) are retried. Unknown outcomes
// (timeouts, 5xx) are retried for reads only, since a write may have been applied.
func retry(ctx context.Context, k kind, send func(context.Context) error) error {
	backoff := wait.Backoff{
		Duration: 150 * time.Millisecond, Factor: 1.6, Jitter: 0.5, Steps: 20, Cap: 5 * time.Second,
	}
	limited, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	var last error
	err := backoff.DelayFunc().Until(limited, true, true, func(context.Context) (bool, error) {
		// ctx, not the limited context: the end of the retries must not cut a request short.
		last = send(ctx)
		switch {
		case last == nil:
			return true, nil
		case refusedForNow(last), k == read && broken(last):
			return false, nil
		default:
			return false, last
		}
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}

// get reads one object by its ID or name with a method of hcloud-go. nil means that there is none.
func get[K, T any](
	ctx context.Context, from func(context.Context, K) (*T, *hcloud.Response, error), key K,
) (found *T, err error) {
	err = retry(ctx, read, func(ctx context.Context) (err error) {
		found, _, err = from(ctx, key)
		return err
	})
	return found, err
}

// refusedForNow reports whether the API did nothing and may accept the request soon.
func refusedForNow(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict,
		hcloud.ErrorCodeRateLimitExceeded)
}

// broken reports whether the outcome is unknown.
func broken(err error) bool {
	var other *notTheAPI
	if errors.As(err, &other) || errors.Is(err, errPaging) {
		return false
	}
	var replied hcloud.Error
	if !errors.As(err, &replied) {
		return !errors.Is(err, context.Canceled)
	}
	switch replied.Code {
	case hcloud.ErrorCodeServerError, hcloud.ErrorCodeBadGateway, hcloud.ErrorCodeTimeout,
		hcloud.ErrorCodeServiceError, hcloud.ErrorCodeUnknownError, "unavailable", "maintenance":
		return true
	}
	return false
}

// errLate means that a change was not accepted in time.
var errLate = errors.New("the state it was decided on is too old; reading it again")

// change sends a write until it is accepted, but not after by unless by is zero, and waits for
// its action, which by doesn't limit.
func (c *Client) change(
	ctx context.Context, by time.Time, send func(context.Context) (*hcloud.Action, error),
) error {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if !by.IsZero() {
		limited, cancel = context.WithDeadlineCause(ctx, by, errLate)
	}
	defer cancel()
	if limited.Err() != nil {
		return context.Cause(limited)
	}
	var action *hcloud.Action
	err := retry(limited, write, func(ctx context.Context) (err error) {
		action, err = send(ctx)
		return err
	})
	if err != nil && limited.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(limited), err)
	}
	if err != nil {
		return err
	}
	return c.actions.wait(ctx, action)
}
