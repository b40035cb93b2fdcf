package hetzner

import "context"

// priority says who goes first when the project's request budget runs low.
//
// Urgent are the writes that somebody's traffic waits for, the polls of their
// actions, and the look at the route table that a route write begins with.
// Background is what only time asks for: looking whether something drifted.
// Everything else is normal.
type priority int

const (
	background priority = iota
	normal
	urgent
	priorities = iota
)

func (p priority) String() string { return [priorities]string{"background", "normal", "urgent"}[p] }

type priorityKey struct{}

// withPriority marks what is done under the context, unless it is marked
// already: what an urgent change needs to know is urgent too.
func withPriority(ctx context.Context, p priority) context.Context {
	if _, marked := ctx.Value(priorityKey{}).(priority); marked {
		return ctx
	}
	return context.WithValue(ctx, priorityKey{}, p)
}

func priorityOf(ctx context.Context) priority {
	if p, marked := ctx.Value(priorityKey{}).(priority); marked {
		return p
	}
	return normal
}

// floor is the share of the budget that a priority leaves to those above it.
// Of 3,600 requests that is enough for the routes of 80 nodes at once, and a few
// for other programs, whose latest requests no answer told of yet.
func (p priority) floor() float64 {
	switch p {
	case urgent:
		return 0.001
	case background:
		return 0.1
	default:
		return 0.05
	}
}
