// Package routes decides which routes a cluster needs and what to change in a
// route table to get them. It is pure: values in, values out, no clock, no
// logging, no Kubernetes.
//
// Decide is the whole decision, for the controller that carries it out and for
// programs that only show it:
//
//	wanted    := routes.Desired(nodes, ranges)            // what should stand
//	ownership := routes.Owned(observed)                   // what of the table is ours
//	plan      := routes.Diff(wanted, ownership)           // what differs
//	plan       = budget.Trim(plan, ownership)             // what the table has room for
//	statuses  := routes.NodeStatuses(nodes, table, wanted, plan) // what to tell each node
//
// Check, VSwitch.Check, Decision.Obstacles, Decision.Shortage and Attachments look
// for what would keep routes from working, each finding with its remedy.
//
// The package must never plan the deletion of a route that the cluster neither
// wrote nor adopted, see Owned, and never plan a write that the table is bound to
// refuse. A route that is not known to be ours, or whose node is merely not
// attached at the moment, is kept and reported.
//
// Limits and rules of the cloud's table: a network holds 100 routes by default,
// destinations may not overlap each other (a default route, which NAT gateways
// need, stands beside all others), and one change runs at a time (Hetzner Cloud
// API, networks).
package routes

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// Route is one entry of a network's route table: packets to Dst go to Via, which
// every route has. It is comparable, and canonical when Dst is masked and neither
// address is an IPv4-mapped IPv6 one.
type Route struct {
	Dst netip.Prefix
	Via netip.Addr
}

// String is "10.244.3.0/24 via 10.0.0.5".
func (r Route) String() string { return r.Dst.String() + " via " + r.Via.String() }

// ErrFull is what Table.Add wraps when the table itself says that it holds as
// many routes as it may, whatever limit was configured.
var ErrFull = errors.New("route table is full")

// Table is the route table of a cloud's network. Every method is safe to
// repeat, and an error leaves open whether the change was applied: list again before
// deciding anything.
type Table interface {
	// List returns every route of the table, whoever made it, or an error. A
	// partial answer is an error.
	List(ctx context.Context) ([]Route, error)
	// Add returns once the route stands. It wraps ErrFull if there is no room.
	Add(ctx context.Context, r Route) error
	// Replace changes the gateway of one destination, touching no other route. It
	// asks for nothing after by unless old is gone already.
	Replace(ctx context.Context, old, to Route, by time.Time) error
	// Delete returns once the route is gone; a route that wasn't there is gone. It
	// asks for nothing after by: what the caller knows may not be true any more.
	Delete(ctx context.Context, r Route, by time.Time) error
}

func compareRoutes(a, b Route) int {
	return cmp.Or(a.Dst.Compare(b.Dst), a.Via.Compare(b.Via))
}

func sortRoutes(rs []Route) []Route {
	slices.SortFunc(rs, compareRoutes)
	return rs
}
