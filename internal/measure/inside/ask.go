package inside

import (
	"net/netip"
	"time"
)

// Port is where the program is asked, over HTTPS.
const Port = 8443

// Listener is a TCP port that the program serves from now on, in place of what it served there
// before. It notes every connection.
type Listener struct {
	Port uint16 `json:"port"`
	// Does is what happens to connections.
	Does Behavior `json:"does"`
	// Status is what is answered with Answers.
	Status int `json:"status,omitempty"`
}

// Behavior is what a Listener does with connections.
type Behavior string

const (
	// Answers reads a request of HTTP, with or without a PROXY header before it, and answers
	// with the status and a short body that names the server.
	Answers Behavior = "answers"
	// Hangs accepts connections and says nothing.
	Hangs Behavior = "hangs"
	// Drops ignores everything, so that nobody gets a connection and nobody is told.
	Drops Behavior = "drops"
	// Closed is nobody listening: connections are refused.
	Closed Behavior = "closed"
)

// Connection is one that a listener accepted.
type Connection struct {
	At    time.Time      `json:"at"` // by the server's clock
	From  netip.AddrPort `json:"from"`
	To    netip.AddrPort `json:"to"`
	First []byte         `json:"first"` // the first bytes that came, at most 512
	// Proxy is the version of the PROXY protocol that it began with; 0: none.
	Proxy int `json:"proxy"`
}

// Stream is packets of UDP, one after the other, each with its number and when it was sent.
type Stream struct {
	// From is the source; its address need not be the server's. To is where.
	From netip.AddrPort `json:"from"`
	To   netip.AddrPort `json:"to"`
	// Spread is over how many addresses the packets go, from To's on, one after the other and
	// again; 0 or 1: all go to To.
	Spread int `json:"spread,omitempty"`
	// Every is the time between two packets, Count how many, at most 10,000.
	Every time.Duration `json:"every"`
	Count int           `json:"count"`
	// Size is that of the whole IP packet, in bytes, at least 64; 0: the smallest. With
	// DontFragment, one that is larger than the interface allows is an error of Send.
	Size         int  `json:"size,omitempty"`
	DontFragment bool `json:"dont_fragment,omitempty"`
}

// Packet is one that arrived.
type Packet struct {
	Number int            `json:"number"`
	Sent   time.Time      `json:"sent"` // by the sender's clock
	At     time.Time      `json:"at"`   // by this server's clock
	From   netip.AddrPort `json:"from"`
	To     netip.AddrPort `json:"to"`
	Size   int            `json:"size"` // of the whole IP packet, in bytes
}

// Interface is a network interface of the server.
type Interface struct {
	Name      string         `json:"name"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Outcome is what became of a connection that was tried.
type Outcome string

const (
	// Answered: the other side said something.
	Answered Outcome = "answered"
	// Refused: there was no connection, and the other side said so.
	Refused Outcome = "refused"
	// Reset: there was a connection, and the other side reset it before it said anything.
	Reset Outcome = "reset"
	// Ended: there was a connection, and the other side closed it before it said anything.
	Ended Outcome = "ended"
	// Unanswered: nobody said anything in time, or there was no connection in time.
	Unanswered Outcome = "unanswered"
	// Unreachable: a router, or the own machine, said that there is no way.
	Unreachable Outcome = "unreachable"
)

// Clock is a server's clock against this machine's.
type Clock struct {
	// Ahead is how much the server's clock is ahead of ours, at most Within wrong.
	Ahead, Within time.Duration
}

// Ours is a time of the server's clock by ours.
func (c Clock) Ours(theirs time.Time) time.Time { return theirs.Add(-c.Ahead) }
