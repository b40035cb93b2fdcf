package robot

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/internal/robot"
)

// Server is a dedicated server.
type Server struct {
	Number int64
	// Addresses are its single addresses, Net its own /64; zero: none.
	Addresses []netip.Addr
	Net       netip.Prefix
}

// Has reports whether an address is the server's.
func (s Server) Has(address netip.Addr) bool {
	return slices.Contains(s.Addresses, address) || s.Net.Contains(address)
}

// ownPrefix is the length of a server's main IPv6 net.
const ownPrefix = 64

// Servers are those of the account.
func (c *Client) Servers(ctx context.Context) ([]Server, error) {
	var bodies []struct {
		Server struct {
			IP      string   `json:"server_ip"`
			IPv6Net string   `json:"server_ipv6_net"`
			Number  int64    `json:"server_number"`
			IPs     []string `json:"ip"`
		} `json:"server"`
	}
	_, err := c.do(ctx, http.MethodGet, "/server", nil, &bodies)
	if err != nil && !robot.IsCode(err, robot.CodeServerNotFound) { // else there is none
		return nil, fmt.Errorf("listing dedicated servers: %w", err)
	}
	var found []Server
	for _, b := range bodies {
		s := Server{Number: b.Server.Number}
		for _, text := range append([]string{b.Server.IP}, b.Server.IPs...) {
			if address, err := netip.ParseAddr(text); err == nil {
				s.Addresses = append(s.Addresses, address)
			}
		}
		if first, err := netip.ParseAddr(b.Server.IPv6Net); err == nil {
			s.Net = netip.PrefixFrom(first, ownPrefix).Masked()
		}
		found = append(found, s)
	}
	return found, nil
}
