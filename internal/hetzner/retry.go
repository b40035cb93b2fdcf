package hetzner

import (
	"context"
	"errors"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/util/wait"
)

// kind says what repeating a request may do.
type kind int

const (
	// read may be repeated whatever became of it.
	read kind = iota
	// write may be repeated only where the API says that nothing was done.
	write
)

// enough is how long a request is repeated. Callers have their own, slower
// ways of trying again.
const enough = 30 * time.Second

// retry sends a request until it is answered or enough time has passed. The
// API's answers fall into three classes: refused for now (somebody else
// changes the resource, or the budget is spent) is tried again; broken in
// between (timeouts, 5xx) is tried again for reads only, since a write may have
// been applied; everything else is the answer.
func retry(ctx context.Context, k kind, send func(context.Context) error) error {
	backoff := wait.Backoff{Duration: 150 * time.Millisecond, Factor: 1.6, Jitter: 0.5, Steps: 20, Cap: 5 * time.Second}
	limited, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	var last error
	err := backoff.DelayFunc().Until(limited, true, true, func(context.Context) (bool, error) {
		// Not the limited context: giving up must not cut a request short.
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

// get sends a read until it is answered, see retry.
func get[T any](ctx context.Context, send func(context.Context) (T, *hcloud.Response, error)) (T, error) {
	var found T
	err := retry(ctx, read, func(ctx context.Context) error {
		var err error
		found, _, err = send(ctx)
		return err
	})
	return found, err
}

// refusedForNow reports whether the API did nothing, and might in a moment.
func refusedForNow(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict, hcloud.ErrorCodeRateLimitExceeded)
}

// broken reports whether nobody knows what the API did.
func broken(err error) bool {
	var other *notTheAPI
	if errors.As(err, &other) || errors.Is(err, errPaging) {
		return false
	}
	var answered hcloud.Error
	if !errors.As(err, &answered) {
		return !errors.Is(err, context.Canceled)
	}
	switch answered.Code {
	case hcloud.ErrorCodeServerError, hcloud.ErrorCodeBadGateway, hcloud.ErrorCodeTimeout,
		hcloud.ErrorCodeServiceError, hcloud.ErrorCodeUnknownError, "unavailable", "maintenance":
		return true
	}
	return false
}
