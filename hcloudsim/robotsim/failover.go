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
	IP      string  `json:"ip"`
	Netmask string  `json:"netmask"`
	Server  *string `json:"server_ip"`
	IPv6Net *string `json:"server_ipv6_net"`
	Number  int64   `json:"server_number"`
	Active  *string `json:"active_server_ip"`
}

func (f *failover) body() failoverBody {
	out := failoverBody{
		IP: f.net.Addr().String(), Netmask: netmask(f.net),
		Server: f.owner.mainIP(), IPv6Net: f.owner.mainNet(), Number: f.owner.number,
	}
	if f.active.IsValid() {
		text := f.active.String()
		out.Active = &text
	}
	return out
}

// netmask formats a prefix length as a mask, which the service uses for both families.
func netmask(p netip.Prefix) string {
	return net.IP(net.CIDRMask(p.Bits(), p.Addr().BitLen())).String()
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

// main returns the server with this main address, or this address of its main IPv6 subnet.
func (a *account) main(ip netip.Addr) *server {
	i := slices.IndexFunc(a.servers, func(s *server) bool {
		return ip == s.ipv4 || s.ipv6.IsValid() && ip == s.ipv6.Addr()
	})
	if i < 0 {
		return nil
	}
	return a.servers[i]
}

func (c *call) asked() (*failover, *Error) {
	ip, err := netip.ParseAddr(c.request.PathValue("ip"))
	for _, f := range c.failovers {
		if err == nil && f.net.Addr() == ip {
			return f, nil
		}
	}
	return nil, refusal(codeNotFound, "Failover IP address not found")
}

func (c *call) listFailovers() (reply, error) {
	var out []map[string]failoverBody
	for _, f := range half(c.fault, c.failovers) {
		out = append(out, map[string]failoverBody{"failover": f.body()})
	}
	if len(out) == 0 {
		return reply{}, refusal(codeNotFound, "No failover IP addresses found")
	}
	return reply{body: out}, nil
}

func (c *call) getFailover() (reply, error) {
	f, err := c.asked()
	if err != nil {
		return reply{}, err
	}
	return reply{body: map[string]failoverBody{"failover": f.body()}}, nil
}

func (c *call) routeFailover() (reply, error) {
	f, err := c.asked()
	if err != nil {
		return reply{}, err
	}
	text := c.form.Get("active_server_ip")
	if text == "" {
		return reply{}, errMissing("active_server_ip")
	}
	to, problem := netip.ParseAddr(text)
	if problem != nil || to.Is4() != f.net.Addr().Is4() {
		return reply{}, errInvalid("active_server_ip")
	}
	if c.main(to) == nil {
		return reply{}, refusal(codeFailoverServer, "Destination server not found")
	}
	if !f.moving && f.active == to {
		return reply{}, refusal(codeFailoverRouted, "The failover IP address is already routed to the selected server")
	}
	return c.move(f, to)
}

func (c *call) unrouteFailover() (reply, error) {
	f, err := c.asked()
	if err != nil {
		return reply{}, err
	}
	return c.move(f, netip.Addr{})
}

// move starts to switch a failover address; the reply follows when the switch ends. The switch
// continues if the client disconnects.
func (c *call) move(f *failover, to netip.Addr) (reply, error) {
	if f.moving {
		return reply{}, refusal(codeFailoverLocked, "Switching the failover IP address is blocked due to another active request")
	}
	f.moving, f.next, f.fails = true, to, c.fault.FailChange
	f.arrive = c.now.Add(c.opts.FailoverTime)
	f.at(c.now)
	return c.later(f.arrive, func(c *call) (reply, error) {
		if c.fault.FailChange {
			return reply{}, refusal(codeFailoverFailed, "Due to an internal error switching of the failover IP address failed")
		}
		return reply{body: map[string]failoverBody{"failover": f.body()}}, nil
	})
}
