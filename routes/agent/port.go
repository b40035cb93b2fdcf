package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Nodes caches all Nodes of the cluster.
type Nodes interface {
	// Ready returns why the cache is not current, or nil.
	Ready() error
	// All returns all Nodes, or an error. Callers must not modify them.
	All() ([]*kube.Node, error)
	// Own returns this machine's Node, or nil if it doesn't exist. Of its conditions, Ready,
	// NetworkUnavailable and PeersReachable suffice.
	Own() *corev1.Node
	// Subscribe calls own for each change of this machine's Node, with nil for a Node that
	// does not exist, and other with the name of each other Node that changes.
	Subscribe(own func(old, now *corev1.Node), other func(name string)) error
}

// Kernel is the machine's networking as routes need it. It is safe for concurrent use.
type Kernel interface {
	// List returns every route of the main table, whatever its owner. A partial list is an error.
	List(ctx context.Context) ([]Entry, error)
	// Add creates routes and returns an error or nil for each of them. It never overwrites.
	Add(ctx context.Context, entries []Entry) []error
	// Replace replaces the route at the entry's place in one step. It overwrites any route there:
	// list the table first.
	Replace(ctx context.Context, to Entry) error
	// Delete returns once the route doesn't exist; it may have been missing before. It touches
	// no route of another protocol.
	Delete(ctx context.Context, e Entry) error
	// Links returns every interface with its addresses.
	Links(ctx context.Context) ([]Link, error)
	// Neighbors returns the kernel's neighbor entries on an interface.
	Neighbors(ctx context.Context, link int) ([]Neighbor, error)
	// Probe makes the kernel resolve a neighbor, without waiting for the result.
	Probe(ctx context.Context, link int, addr netip.Addr) error
	// Proxies returns every IPv4 proxy neighbor entry, whatever its owner. The kernel sends no
	// events about them. They are removed with their interface, also when that is set down.
	Proxies(ctx context.Context) ([]Proxy, error)
	// AddProxy creates an entry, and marks an existing one as p's: list the entries first.
	AddProxy(ctx context.Context, p Proxy) error
	// DeleteProxy returns once the entry doesn't exist, whatever its owner: list the entries
	// first. It may have been missing before.
	DeleteProxy(ctx context.Context, p Proxy) error
	// Watch calls happened for every change of routes, links and addresses, serially, until
	// the context ends. It first reports EventsLost, because earlier changes are unknown, and
	// again whenever the kernel dropped events, after which it continues.
	Watch(ctx context.Context, happened func(Event)) error
}

// ErrDown is wrapped by errors of Edge.Apply if the component doesn't work at all, rather than
// being out of date: no pod that relies on it may start.
var ErrDown = errors.New("is down")

// Neighbor is a machine on the same segment.
type Neighbor struct {
	Addr netip.Addr
	// Silent means that the neighbor has not replied to the kernel, or not yet.
	Silent bool
	// Hardware is its link-layer address; nil if unknown.
	Hardware net.HardwareAddr
}

// Event is a change in the kernel.
type Event struct {
	Kind EventKind
	// Route is set in RouteSet and RouteGone.
	Route Entry
	// LinkChanged has Link and Name of the interface, AddressChanged has Link and Addr.
	Link int
	Name string
	Addr netip.Addr
}

// EventKind is the kind of an Event.
type EventKind int

const (
	EventsLost EventKind = iota // some are missing: a full pass is due
	RouteSet
	RouteGone
	LinkChanged
	AddressChanged
)

// Edge is another component of the node's network that follows the same Nodes, such as the CNI
// configuration. It is called by one goroutine at a time.
type Edge interface {
	Name() string
	// Apply reconciles the component with the view. Unless full is set, it may assume that no
	// other program changed anything since it last succeeded. A view without podCIDRs makes an
	// Edge of Config.After keep pods from starting.
	Apply(ctx context.Context, v View, full bool) (Report, error)
	// Watch calls changed when another program may have altered the component, until the
	// context ends. The next Apply then reads the current state even without full.
	Watch(ctx context.Context, changed func()) error
}

// Report has an Edge's changes, and warnings that don't affect readiness, one line each.
type Report struct {
	Changed, Warnings []string
	// Repaired means that another program had altered what was changed.
	Repaired bool
}
