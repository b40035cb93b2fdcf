package robot

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

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

// machine converts a server, with the labels of the Hetzner cloud controller manager.
func (b serverBody) machine() (cloud.Machine, error) {
	if b.Number <= 0 {
		return cloud.Machine{}, fmt.Errorf("server %q: server_number %d: is no ID", b.Name, b.Number)
	}
	zone := strings.ToLower(label(b.DC)) // the data center, such as FSN1-DC14
	region, _, _ := strings.Cut(zone, "-")
	m := cloud.Machine{
		Dedicated: true, ID: b.Number, Name: b.Name, Type: label(b.Product), Zone: zone, Region: region,
	}
	wrong := func(field, value string) error {
		return fmt.Errorf("server %d: %s %q: is no IP address", b.Number, field, value)
	}
	var err error
	if b.IP != "" {
		if m.PublicIPv4, err = netip.ParseAddr(b.IP); err != nil {
			return cloud.Machine{}, wrong("server_ip", b.IP)
		}
	}
	if b.IPv6Net != "" {
		first, err := netip.ParseAddr(b.IPv6Net)
		if err != nil || !first.Is6() {
			return cloud.Machine{}, wrong("server_ipv6_net", b.IPv6Net)
		}
		m.PublicIPv6 = netip.PrefixFrom(first, ownPrefix).Masked()
	}
	for _, text := range b.IPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return cloud.Machine{}, wrong("ip", text)
		}
		m.Addresses = append(m.Addresses, ip)
	}
	return m, nil
}

// Servers returns all servers of the account by ID, never a part.
func (c *Client) Servers(ctx context.Context) ([]cloud.Machine, error) {
	var bodies []struct {
		Server serverBody `json:"server"`
	}
	err := c.do(ctx, listServers, "/server", nil, &bodies)
	if err != nil && !IsCode(err, CodeServerNotFound) { // otherwise the account has no server
		return nil, fmt.Errorf("listing dedicated servers: %w", err)
	}
	found := make([]cloud.Machine, len(bodies))
	for i, b := range bodies {
		if found[i], err = b.Server.machine(); err != nil {
			return nil, fmt.Errorf("listing dedicated servers: %w", err)
		}
	}
	slices.SortFunc(found, func(a, b cloud.Machine) int { return cmp.Compare(a.ID, b.ID) })
	return found, nil
}

// Server returns one server. The code is CodeServerNotFound if it doesn't exist.
func (c *Client) Server(ctx context.Context, number int64) (cloud.Machine, error) {
	var body struct {
		Server serverBody `json:"server"`
	}
	err := c.do(ctx, getServer, "/server/"+strconv.FormatInt(number, 10), nil, &body)
	var m cloud.Machine
	if err == nil {
		m, err = body.Server.machine()
	}
	if err == nil && m.ID != number {
		err = fmt.Errorf("the response is about server %d", m.ID)
	}
	if err != nil {
		return cloud.Machine{}, fmt.Errorf("looking up dedicated server %d: %w", number, err)
	}
	return m, nil
}

// longestLabel is the maximum length of a label's value.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
const longestLabel = 63

// label converts a text to a label's value: spaces and other invalid characters become dashes.
func label(text string) string {
	const ends = "-_."
	valid := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9',
			strings.ContainsRune(ends, r):
			return r
		default:
			return '-'
		}
	}, text)
	valid = strings.Trim(valid, ends)
	return strings.TrimRight(valid[:min(len(valid), longestLabel)], ends)
}
