package experiment

import (
	"context"
	"time"
)

// costly is how long something may be tried in vain so that it is tried again for the next
// experiment.
const costly = time.Minute

// lazy is something shared that is made when it is asked for first.
type lazy[T any] struct {
	thing *T
	err   error // why it can't be made, if that took long to find out
}

// get returns it. What couldn't be made is tried again when it is asked for next, unless it took so
// long that nothing else would be done in the run. The end of ctx says nothing about it.
func (l *lazy[T]) get(ctx context.Context, make func() (*T, error)) (*T, error) {
	if l.thing != nil || l.err != nil {
		return l.thing, l.err
	}
	began := time.Now()
	thing, err := make()
	switch {
	case err == nil:
		l.thing = thing
	case time.Since(began) > costly && ctx.Err() == nil:
		l.err = err
	}
	return thing, err
}
