package experiment

import (
	"context"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// Program is the program inside a server, as experiments ask it: an *inside.Client, or a fake. It
// is safe to ask it from several goroutines. An error names the server, and never a key.
type Program interface {
	// Ready waits until the program answers.
	Ready(context.Context) error
	// Clock is the server's clock against ours.
	Clock(context.Context) (inside.Clock, error)

	Interfaces(context.Context) ([]inside.Interface, error)
	// AddAddress gives an interface an address that is usable at once. RemoveAddress takes it
	// away; it may be gone already.
	AddAddress(ctx context.Context, address netip.Prefix, device string) error
	RemoveAddress(ctx context.Context, address netip.Prefix, device string) error
	SetMTU(ctx context.Context, device string, bytes int) error
	AddRoute(ctx context.Context, dst netip.Prefix, via netip.Addr, device string) error
	RemoveRoute(ctx context.Context, dst netip.Prefix, via netip.Addr, device string) error
	// AnswerARP answers for addresses that are no interface's, until StopARP.
	AnswerARP(ctx context.Context, device string, addresses netip.Prefix) error
	StopARP(ctx context.Context, device string, addresses netip.Prefix) error

	Listen(context.Context, inside.Listener) error
	// Connections are those since Listen, the oldest first.
	Connections(ctx context.Context, port uint16) ([]inside.Connection, error)
	// Receive takes packets of UDP at a port of every address, IPv4 and IPv6, and forgets those
	// that came there before. Packets are those since then.
	Receive(ctx context.Context, port uint16) error
	Packets(ctx context.Context, port uint16) ([]inside.Packet, error)
	// Start sends in the background, Send until all is sent.
	Start(context.Context, inside.Stream) error
	Send(context.Context, inside.Stream) error
	// Dial opens one connection from the server, sends a request of HTTP and says what it got
	// within the time.
	Dial(ctx context.Context, to netip.AddrPort, within time.Duration) (inside.Outcome, error)

	// Stop ends the program; what it added to interfaces is gone.
	Stop(context.Context) error
}
