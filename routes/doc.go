// Package routes decides which routes a cluster needs and which changes of a route table
// achieve that. It is pure: no clock, no logging, no Kubernetes.
//
// Decide combines all steps, for the controller that applies the result and for programs that
// only display it:
//
//	wanted    := routes.Desired(nodes, ranges)            // desired routes
//	ownership := routes.Owned(observed)                   // owners of the existing routes
//	plan      := routes.Diff(wanted, ownership)           // differences
//	plan       = budget.Trim(plan, ownership)             // differences that fit
//	statuses  := routes.NodeStatuses(nodes, table, wanted, plan) // conditions of the nodes
//
// Check, VSwitch.Check, Decision.Obstacles, Decision.Shortage and Attachments return problems
// that would keep routes from working, each with its remedy.
//
// The package must never plan the deletion of a route that the cluster neither wrote nor
// adopted, see Owned, nor a write that the table is bound to reject. A route of unknown owner,
// or of a node that is only detached at the moment, is kept and reported.
//
// Limits and rules of the cloud's table: a network holds 100 routes by default, destinations
// must not overlap each other (except for a default route, which NAT gateways need), and one
// change runs at a time (Hetzner Cloud API, networks).
package routes

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// Route is an entry of a network's route table: packets to Dst are sent to Via, which is
// always set. It is comparable, and canonical if Dst is masked and neither address is an
// IPv4-mapped IPv6 address.
type Route struct {
	Dst netip.Prefix
	Via netip.Addr
}

// String returns, for example, "10.244.3.0/24 via 10.0.0.5".
func (r Route) String() string { return r.Dst.String() + " via " + r.Via.String() }

// ErrFull is wrapped by errors of Table.Add if the table has no room, whatever was configured.
var ErrFull = errors.New("route table is full")

// Table is the route table of a cloud's network. Every method is safe to repeat. After an
// error the change may have been applied: list again before the next decision.
type Table interface {
	// List returns every route of the table, whatever its owner. A partial list is an error.
	List(ctx context.Context) ([]Route, error)
	// Add returns once the route exists. The error wraps ErrFull if there is no room.
	Add(ctx context.Context, r Route) error
	// Replace changes the gateway of one destination without touching other routes. It sends
	// no request after by, unless old is already deleted.
	Replace(ctx context.Context, old, to Route, by time.Time) error
	// Delete returns once the route doesn't exist; it may have been missing before. It sends
	// no request after by, when the caller's state may be outdated.
	Delete(ctx context.Context, r Route, by time.Time) error
}

func compareRoutes(a, b Route) int {
	return cmp.Or(a.Dst.Compare(b.Dst), a.Via.Compare(b.Via))
}

func sortRoutes(rs []Route) []Route {
	slices.SortFunc(rs, compareRoutes)
	return rs
}
