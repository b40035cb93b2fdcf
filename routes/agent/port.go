package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Nodes are all Nodes of the cluster, as far as this machine has read them.
type Nodes interface {
	// Ready returns why they are not current, or nil.
	Ready() error
	// All returns all of them, or an error. They are not to be changed.
	All() ([]*kube.Node, error)
	// Own returns this machine's, as far as Trim keeps it, or nil if there is none.
	Own() *corev1.Node
	// Subscribe calls own for each change of this machine's Node, where nil is a Node that does not
	// exist, and other with the name of each other Node that changes.
	Subscribe(own func(old, now *corev1.Node), other func(name string)) error
}

// Kernel is the machine's networking as far as routes need it. Implementations
// are safe for concurrent use.
type Kernel interface {
	// List returns every route of the main table, whoever made it, or an error.
	// A partial answer is an error.
	List(ctx context.Context) ([]Entry, error)
	// Add makes a route where there is none, and wraps ErrTaken where there is.
	// It never overwrites.
	Add(ctx context.Context, e Entry) error
	// Replace changes what stands at the place that both entries share, in one
	// step. It overwrites whatever stands there: look before.
	Replace(ctx context.Context, old, to Entry) error
	// Delete returns once the route is gone; one that wasn't there is gone. It
	// touches no route of another protocol.
	Delete(ctx context.Context, e Entry) error
	// Links returns every interface with its addresses.
	Links(ctx context.Context) ([]Link, error)
	// Neighbors returns what is known of the neighbors on an interface.
	Neighbors(ctx context.Context, link int) ([]Neighbor, error)
	// Probe makes the kernel find out about a neighbor, and doesn't wait for it.
	Probe(ctx context.Context, link int, addr netip.Addr) error
	// Proxies returns every address of IPv4 that ARP is answered for by a proxy neighbor
	// entry, whoever made it. The kernel has no event about them; they go with their
	// interface, also when that is switched off.
	Proxies(ctx context.Context) ([]Proxy, error)
	// AddProxy makes an entry, and marks one that is there as p's: look before.
	AddProxy(ctx context.Context, p Proxy) error
	// DeleteProxy returns once the entry is gone, whoever made it: look before. One
	// that wasn't there is gone.
	DeleteProxy(ctx context.Context, p Proxy) error
	// Watch calls happened for every change of routes, links and addresses, one
	// after the other, until the context ends. Before the first it reports
	// EventsLost, because nobody knows what happened until then, and again
	// whenever the kernel dropped some; it goes on by itself.
	Watch(ctx context.Context, happened func(Event)) error
}

// ErrTaken is what Kernel.Add wraps if the place is taken.
var ErrTaken = errors.New("a route with this destination and metric exists")

// ErrDown is what Edge.Apply wraps if it failed and what it keeps is known not to
// work at all, rather than to be out of date: no pod may start that relies on it.
var ErrDown = errors.New("is down")

// Neighbor is a machine on the same segment.
type Neighbor struct {
	Addr netip.Addr
	// Silent: the kernel has asked for it and got no answer, or none yet.
	Silent bool
	// Hardware is its address below IP; nil: not known.
	Hardware net.HardwareAddr
}

// Event is a change in the kernel.
type Event struct {
	Kind EventKind
	// Route of RouteSet and RouteGone.
	Route Entry
	// Link is the index and Name the name of the interface that a LinkChanged is
	// about, Addr the address of an AddressChanged.
	Link int
	Name string
	Addr netip.Addr
}

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	EventsLost EventKind = iota // some are missing: a full pass is due
	RouteSet
	RouteGone
	LinkChanged
	AddressChanged
)

// Edge is another part of the node's network that follows the same Nodes, such
// as the CNI configuration. It is called by one goroutine at a time.
type Edge interface {
	Name() string
	// Apply brings it in step with the view. Unless full is set it may take for
	// granted that nobody else changed anything since it last succeeded. A view
	// without podCIDRs tells an Edge of Config.After to keep pods from starting.
	Apply(ctx context.Context, v View, full bool) (Report, error)
	// Watch calls changed when somebody else may have altered it, until the
	// context ends. The next Apply then reads what is there, whatever it is told.
	Watch(ctx context.Context, changed func()) error
}

// Report is what an Edge did, and what people should know though the node works;
// one line each.
type Report struct {
	Changed, Warnings []string
	// Repaired: what changed had been altered by somebody else.
	Repaired bool
}
