package routes

// Mode is how packets of one family are routed to the pods of another node.
type Mode string

const (
	ByCloud  Mode = "cloud"  // the network's table, behind an aggregate route on each node
	ByNodes  Mode = "node"   // kernel routes to every peer
	Natively Mode = "native" // the provider routes each server's own prefix
	Unrouted Mode = "none"   // not routed by Underlay
)

// Modes are the modes of both families.
type Modes struct{ IPv4, IPv6 Mode }

// Of returns a family's mode.
func (m Modes) Of(ipv4 bool) Mode {
	if ipv4 {
		return m.IPv4
	}
	return m.IPv6
}

// Any reports whether a family has the mode.
func (m Modes) Any(mode Mode) bool { return m.IPv4 == mode || m.IPv6 == mode }
