package dedicated

import (
	"strings"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/robot"
)

// server converts a server, with the labels of the Hetzner cloud controller manager.
func server(s robot.Server) cloud.Machine {
	zone := strings.ToLower(label(s.DC))
	region, _, _ := strings.Cut(zone, "-")
	return cloud.Machine{
		Dedicated: true, ID: s.Number, Name: s.Name,
		PublicIPv4: s.IPv4, PublicIPv6: s.IPv6, Addresses: s.Addresses,
		Type: label(s.Product), Zone: zone, Region: region,
	}
}

// longestLabel is the maximum length of a label's value.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
const longestLabel = 63

// label converts a text to a label's value: spaces and other invalid characters become dashes.
func label(text string) string {
	const ends = "-_."
	valid := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune(ends, r):
			return r
		default:
			return '-'
		}
	}, text)
	valid = strings.Trim(valid, ends)
	return strings.TrimRight(valid[:min(len(valid), longestLabel)], ends)
}
