package inside

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"time"
)

// readyPause is between two looks whether a program answers.
const readyPause = 250 * time.Millisecond

// exchanges is how often the clock is asked for; the quickest answer counts.
const exchanges = 8

// longestPoll is how long one request waits for packets to be sent.
const longestPoll = 20 * time.Second

// Ready waits until the program answers, or something else does, or ctx ends.
func (c *Client) Ready(ctx context.Context) error {
	var last error // before ctx ended
	for {
		err := c.askOnce(ctx, "clock", struct{}{}, nil, 0)
		if final(err) {
			return c.failed("waiting for the program", err)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return c.failed("waiting for the program", fmt.Errorf("%w; at last: %w", ctx.Err(), last))
		case <-time.After(readyPause):
		}
	}
}

// Clock compares the server's clock with this machine's.
func (c *Client) Clock(ctx context.Context) (Clock, error) {
	var best Clock
	for n := range exchanges {
		var answer struct {
			Now time.Time `json:"now"`
		}
		before := time.Now()
		if err := c.ask(ctx, "clock", struct{}{}, &answer, 0); err != nil {
			return Clock{}, err
		}
		within := time.Since(before) / 2
		if n == 0 || within < best.Within {
			best = Clock{Ahead: answer.Now.Sub(before.Add(within)), Within: within}
		}
	}
	return best, nil
}

// Interfaces are the server's network interfaces, without its loopback.
func (c *Client) Interfaces(ctx context.Context) ([]Interface, error) {
	var answer []Interface
	err := c.ask(ctx, "interfaces", struct{}{}, &answer, 0)
	return answer, err
}

// address is an address of an interface.
type address struct {
	Address netip.Prefix `json:"address"`
	Device  string       `json:"device"`
}

// AddAddress gives an interface an address, without a wait for duplicates. An interface that has
// it keeps it. A whole prefix on "lo" makes all its IPv4 addresses the server's.
func (c *Client) AddAddress(ctx context.Context, p netip.Prefix, device string) error {
	return c.ask(ctx, "add_address", address{p, device}, nil, 0)
}

// RemoveAddress takes an address from an interface, if AddAddress gave it; it is no error if the
// interface hasn't got it.
func (c *Client) RemoveAddress(ctx context.Context, p netip.Prefix, device string) error {
	return c.ask(ctx, "remove_address", address{p, device}, nil, 0)
}

// SetMTU sets the MTU of an interface, until the program ends. An interface may refuse.
func (c *Client) SetMTU(ctx context.Context, device string, bytes int) error {
	return c.ask(ctx, "set_mtu", map[string]any{"device": device, "bytes": bytes}, nil, 0)
}

// route is one of the server.
type route struct {
	Destination netip.Prefix `json:"destination"`
	Via         netip.Addr   `json:"via,omitzero"`
	Device      string       `json:"device"`
}

// AddRoute makes packets for the destination leave by the device, for via, which is taken to be
// on the segment; without a via the destination itself is. A route to the destination that
// AddRoute made is replaced, another one is an error.
func (c *Client) AddRoute(
	ctx context.Context, dst netip.Prefix, via netip.Addr, device string,
) error {
	return c.ask(ctx, "add_route", route{dst, via, device}, nil, 0)
}

// RemoveRoute removes the route that AddRoute made; it is no error if there is none.
func (c *Client) RemoveRoute(
	ctx context.Context, dst netip.Prefix, via netip.Addr, device string,
) error {
	return c.ask(ctx, "remove_route", route{dst, via, device}, nil, 0)
}

// arp is who is answered for.
type arp struct {
	Device string       `json:"device"`
	For    netip.Prefix `json:"for"`
}

// AnswerARP answers whoever asks by ARP on the device for an address of the prefix, with the
// device's own hardware address, as a node does for its pods.
func (c *Client) AnswerARP(ctx context.Context, device string, prefix netip.Prefix) error {
	return c.ask(ctx, "answer_arp", arp{device, prefix}, nil, 0)
}

// StopARP ends AnswerARP for the prefix.
func (c *Client) StopARP(ctx context.Context, device string, prefix netip.Prefix) error {
	return c.ask(ctx, "stop_arp", arp{device, prefix}, nil, 0)
}

// Listen serves a TCP port, in both families and at every address of the server. What is known of
// earlier connections to the port is forgotten.
func (c *Client) Listen(ctx context.Context, l Listener) error {
	return c.ask(ctx, "listen", l, nil, 0)
}

// port is one of TCP or UDP.
type port struct {
	Port uint16 `json:"port"`
}

// Connections are those to a TCP port since Listen, the oldest first.
func (c *Client) Connections(ctx context.Context, of uint16) ([]Connection, error) {
	var answer []Connection
	err := c.ask(ctx, "connections", port{of}, &answer, 0)
	return answer, err
}

// Receive listens for a stream's packets at a UDP port, in both families and at every address of
// the server. What came before is forgotten.
func (c *Client) Receive(ctx context.Context, at uint16) error {
	return c.ask(ctx, "receive", port{at}, nil, 0)
}

// Packets are those that came to a UDP port since Receive, in the order in which they came.
func (c *Client) Packets(ctx context.Context, at uint16) ([]Packet, error) {
	var answer []Packet
	err := c.ask(ctx, "packets", port{at}, &answer, 0)
	return answer, err
}

// stream is a Stream with a name, by which a request that is repeated is known.
type stream struct {
	ID string `json:"id"`
	Stream
}

// Start begins to send a stream's packets, and doesn't wait until they are sent.
func (c *Client) Start(ctx context.Context, s Stream) error {
	return c.ask(ctx, "start", stream{rand.Text(), s}, nil, 0)
}

// Send sends a stream's packets. It is ErrTooLarge if an interface has no room for them.
func (c *Client) Send(ctx context.Context, s Stream) error {
	id := rand.Text()
	if err := c.ask(ctx, "start", stream{id, s}, nil, 0); err != nil {
		return err
	}
	for {
		var answer struct {
			Done bool `json:"done"`
		}
		question := map[string]any{"id": id, "within": longestPoll}
		if err := c.ask(ctx, "wait", question, &answer, longestPoll); err != nil || answer.Done {
			return err
		}
	}
}

// Dial tries one connection from the server: it asks for "/" by HTTP, and tells what became of it
// within that time.
func (c *Client) Dial(
	ctx context.Context, to netip.AddrPort, within time.Duration,
) (Outcome, error) {
	var answer struct {
		Outcome Outcome `json:"outcome"`
	}
	err := c.ask(ctx, "dial", map[string]any{"to": to, "within": within}, &answer, within)
	return answer.Outcome, err
}

// Stop ends the program. What it gave to interfaces is gone then.
func (c *Client) Stop(ctx context.Context) error {
	err := c.ask(ctx, "stop", struct{}{}, nil, 0)
	c.Close()
	return err
}
