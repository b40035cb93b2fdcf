package robot

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
)

// Server is a dedicated server.
type Server struct {
	Number int64  // its ID
	Name   string // chosen in Robot, not its hostname
	// IPv4 is the main address, or the zero Addr.
	IPv4 netip.Addr
	// IPv6 is the server's own /64, or the zero Prefix.
	IPv6 netip.Prefix
	// Addresses are all single addresses, including the main one.
	Addresses []netip.Addr
	Product   string // such as AX41-NVMe
	DC        string // data center, such as FSN1-DC14
}

type serverBody struct {
	IP      string   `json:"server_ip"`
	IPv6Net string   `json:"server_ipv6_net"`
	Number  int64    `json:"server_number"`
	Name    string   `json:"server_name"`
	Product string   `json:"product"`
	DC      string   `json:"dc"`
	IPs     []string `json:"ip"`
}

// ownPrefix is the length of a server's main IPv6 net.
const ownPrefix = 64

func (b serverBody) server() (Server, error) {
	if b.Number <= 0 {
		return Server{}, fmt.Errorf("server %q: server_number %d: is no ID", b.Name, b.Number)
	}
	s := Server{Number: b.Number, Name: b.Name, Product: b.Product, DC: b.DC}
	wrong := func(field, value string) error {
		return fmt.Errorf("server %d: %s %q: is no IP address", b.Number, field, value)
	}
	var err error
	if b.IP != "" {
		if s.IPv4, err = netip.ParseAddr(b.IP); err != nil {
			return Server{}, wrong("server_ip", b.IP)
		}
	}
	if b.IPv6Net != "" {
		first, err := netip.ParseAddr(b.IPv6Net)
		if err != nil || !first.Is6() {
			return Server{}, wrong("server_ipv6_net", b.IPv6Net)
		}
		s.IPv6 = netip.PrefixFrom(first, ownPrefix).Masked()
	}
	for _, text := range b.IPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return Server{}, wrong("ip", text)
		}
		s.Addresses = append(s.Addresses, ip)
	}
	return s, nil
}

// Servers returns all servers of the account, never a part.
func (c *Client) Servers(ctx context.Context) ([]Server, error) {
	var bodies []struct {
		Server serverBody `json:"server"`
	}
	err := c.do(ctx, listServers, "/server", nil, &bodies)
	if err != nil && !IsCode(err, CodeServerNotFound) { // otherwise the account has no server
		return nil, fmt.Errorf("listing dedicated servers: %w", err)
	}
	var found []Server
	for _, b := range bodies {
		s, err := b.Server.server()
		if err != nil {
			return nil, fmt.Errorf("listing dedicated servers: %w", err)
		}
		found = append(found, s)
	}
	return found, nil
}

// Server returns one server. The code is CodeServerNotFound if it doesn't exist.
func (c *Client) Server(ctx context.Context, number int64) (Server, error) {
	var body struct {
		Server serverBody `json:"server"`
	}
	err := c.do(ctx, getServer, "/server/"+strconv.FormatInt(number, 10), nil, &body)
	var s Server
	if err == nil {
		s, err = body.Server.server()
	}
	if err == nil && s.Number != number {
		err = fmt.Errorf("the response is about server %d", s.Number)
	}
	if err != nil {
		return Server{}, fmt.Errorf("looking up dedicated server %d: %w", number, err)
	}
	return s, nil
}
