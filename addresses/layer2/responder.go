package layer2

import (
	"context"
	"net"

	"github.com/underlay-ccm/underlay/addresses"
)

// Wire sends and receives the Ethernet frames of one family on one link: ARP for IPv4, neighbor
// solicitations and advertisements for IPv6. It is used by several goroutines at once.
type Wire interface {
	// Send sends a whole frame. It does not wait: what the interface has no room for is an error.
	Send(frame []byte) error
	// Receive waits for a frame and returns its length. After an error the wire is closed, and
	// another one opened.
	Receive(buffer []byte) (int, error)
	// Join lets the link pass what is sent to the solicited-node groups of all of these addresses,
	// and of no others. IPv6 only.
	Join(ctx context.Context, held []Want) error
	// Close ends Receive.
	Close() error
}

// Config is what a Responder works with.
type Config struct {
	// Open opens a wire.
	Open func(ctx context.Context, link Link, family addresses.Family) (Wire, error)
	// Friend reports whether a hardware address belongs to a machine of the cluster. It is asked
	// seldom, and must not wait. Nil: none does.
	Friend func(net.HardwareAddr) bool
}

// Responder holds addresses.
type Responder struct {
	cfg     Config
	changes chan struct{}
}

// New makes a Responder that holds nothing. It works while Run does.
func New(cfg Config) *Responder {
	return &Responder{cfg: cfg, changes: make(chan struct{}, 1)}
}

// Set says what is desired, as a whole. It may be called at any time, again and again, also before
// Run.
func (r *Responder) Set(d Desired) {}

// State is what the machine does about each address that it is to hold, or leaves, by address.
func (r *Responder) State() []State { return nil }

// Changes receives a value after phases or claimants have changed since the last one was received.
// There is one channel, for one receiver.
func (r *Responder) Changes() <-chan struct{} { return r.changes }

// Run answers and announces until the context ends. Then it falls silent without a word: what is
// held stays held by whoever answers next.
func (r *Responder) Run(ctx context.Context) error { return nil }
