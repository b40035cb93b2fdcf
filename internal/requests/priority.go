package requests

import "context"

// Priority says who goes first when a budget runs low.
//
// Urgent are the writes that somebody's traffic waits for, and what they have to
// know. Background is what only time asks for: looking whether something
// drifted. Everything else is Normal.
type Priority int

const (
	Background Priority = iota
	Normal
	Urgent
	priorities = iota
)

func (p Priority) String() string { return [priorities]string{"background", "normal", "urgent"}[p] }

type priorityKey struct{}

// WithPriority marks what is done under the context, unless it is marked
// already: what an urgent change needs to know is urgent too.
func WithPriority(ctx context.Context, p Priority) context.Context {
	if _, marked := ctx.Value(priorityKey{}).(Priority); marked {
		return ctx
	}
	return context.WithValue(ctx, priorityKey{}, p)
}

// PriorityOf returns how a context is marked; one that isn't is Normal.
func PriorityOf(ctx context.Context) Priority {
	if p, marked := ctx.Value(priorityKey{}).(Priority); marked {
		return p
	}
	return Normal
}
