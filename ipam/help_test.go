package ipam

import "net/netip"

func pfx(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, pfx(text))
	}
	return out
}
