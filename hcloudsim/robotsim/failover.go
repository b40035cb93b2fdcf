package robotsim

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// failover is an address or subnet that can be routed to any of the account's servers.
type failover struct {
	net   netip.Prefix
	owner *server // the server that it was ordered for
	// active is the address that it is routed to: a server's main IPv4 address, or the address of
	// its main IPv6 subnet. It is zero if unrouted.
	active netip.Addr

	// State of a running switch: its end, its destination, and whether it fails.
	moving bool
	arrive time.Time
	next   netip.Addr
	fails  bool
}

type failoverBody struct {
	IP      string `json:"ip"`
	Netmask string `json:"netmask"`
	serverID
	Active *string `json:"active_server_ip"`
}

func (f *failover) body() map[string]failoverBody {
	out := failoverBody{
		IP: f.net.Addr().String(), serverID: f.owner.id(),
		// The service uses masks for both families.
		Netmask: net.IP(net.CIDRMask(f.net.Bits(), f.net.Addr().BitLen())).String(),
	}
	if f.active.IsValid() {
		out.Active = new(f.active.String())
	}
	return map[string]failoverBody{"failover": out}
}

// at completes the switch if it has ended.
func (f *failover) at(now time.Time) {
	if !f.moving || now.Before(f.arrive) {
		return
	}
	if !f.fails {
		f.active = f.next
	}
	f.moving = false
}

// isMain reports whether a server has this main address, or this address of its main IPv6 subnet.
func (a *account) isMain(ip netip.Addr) bool {
	return slices.ContainsFunc(a.servers, func(s *server) bool {
		return ip == s.ipv4 || s.ipv6.IsValid() && ip == s.ipv6.Addr()
	})
}

func (c *call) failoverInPath() (*failover, error) {
	ip, err := netip.ParseAddr(c.request.PathValue("ip"))
	for _, f := range c.failovers {
		if err == nil && f.net.Addr() == ip {
			return f, nil
		}
	}
	return nil, refusal(codeNotFound, "Failover IP address not found")
}

func (c *call) listFailovers() (reply, error) {
	if out := each(half(c.Fault, c.failovers), (*failover).body); len(out) > 0 {
		return reply{body: out}, nil
	}
	return reply{}, refusal(codeNotFound, "No failover IP addresses found")
}

func (c *call) getFailover(f *failover) (reply, error) { return reply{body: f.body()}, nil }

func (c *call) routeFailover(f *failover) (reply, error) {
	const field = "active_server_ip"
	text := c.form.Get(field)
	to, err := netip.ParseAddr(text)
	switch {
	case text == "":
		return reply{}, errMissing(field)
	case err != nil || to.Is4() != f.net.Addr().Is4():
		return reply{}, errInvalid(field)
	case !c.isMain(to):
		return reply{}, refusal(codeFailoverServer, "Destination server not found")
	case !f.moving && f.active == to:
		return reply{}, refusal(codeFailoverRouted,
			"The failover IP address is already routed to the selected server")
	}
	return c.move(f, to)
}

func (c *call) unrouteFailover(f *failover) (reply, error) { return c.move(f, netip.Addr{}) }

// move starts to switch a failover address; the reply follows when the switch ends. The switch
// continues if the client disconnects.
func (c *call) move(f *failover, to netip.Addr) (reply, error) {
	if f.moving {
		return reply{}, refusal(codeFailoverLocked,
			"Switching the failover IP address is blocked due to another active request")
	}
	f.moving, f.next, f.fails = true, to, c.Fault.FailAction != ""
	f.arrive = c.now.Add(c.opts.FailoverTime)
	f.at(c.now)
	return c.later(f.arrive, func(c *call) (reply, error) {
		if c.Fault.FailAction != "" {
			return reply{}, refusal(codeFailoverFailed,
				"Due to an internal error switching of the failover IP address failed")
		}
		return reply{body: f.body()}, nil
	})
}
