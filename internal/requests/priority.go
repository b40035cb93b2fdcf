package requests

import "context"

// Priority orders requests when a budget runs low.
//
// Urgent are writes that traffic depends on, and the reads that they need. Background are
// periodic checks for drift. All other requests are Normal.
type Priority int

const (
	Background Priority = iota
	Normal
	Urgent
	priorities = iota
)

func (p Priority) String() string { return [priorities]string{"background", "normal", "urgent"}[p] }

type priorityKey struct{}

// WithPriority sets the priority of all requests under the context unless it is already set: the
// reads that an urgent change needs are urgent too.
func WithPriority(ctx context.Context, p Priority) context.Context {
	if _, marked := ctx.Value(priorityKey{}).(Priority); marked {
		return ctx
	}
	return context.WithValue(ctx, priorityKey{}, p)
}

// PriorityOf returns the context's priority, by default Normal.
func PriorityOf(ctx context.Context) Priority {
	if p, marked := ctx.Value(priorityKey{}).(Priority); marked {
		return p
	}
	return Normal
}
