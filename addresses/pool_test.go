package addresses_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/addresses"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7":                "192.0.2.7",
		"192.0.2.0/30":             "192.0.2.0-192.0.2.3",
		"192.0.2.16-192.0.2.31":    "192.0.2.16-192.0.2.31",
		"192.0.2.16 - 192.0.2.31":  "192.0.2.16-192.0.2.31",
		"2001:db8::/125":           "2001:db8::-2001:db8::7",
		"2001:db8::1-2001:db8::f0": "2001:db8::1-2001:db8::f0",
		"0.0.0.0/0":                "0.0.0.0-255.255.255.255",
	} {
		got, err := addresses.ParseRange(text)
		if err != nil || got.String() != want {
			t.Errorf("%q is %s, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "write 192.0.2.7",
		"192.0.2":                 "not an address",
		"192.0.2.1/24":            "write 192.0.2.0/24",
		"192.0.2.9-192.0.2.1":     "write 192.0.2.1-192.0.2.9",
		"192.0.2.9-2001:db8::1":   "two address families",
		"fe80::1%eth0":            "zone",
		"::ffff:192.0.2.1":        "an IPv4 address in IPv6",
		"192.0.2.1-192.0.2.2-192": "not an address",
	} {
		if got, err := addresses.ParseRange(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestValidate(t *testing.T) {
	wrong := addresses.Validate([]addresses.Pool{
		pool("a", "192.0.2.0/28"), pool("b", "192.0.2.15-192.0.2.20", "2001:db8::/64"), pool("a", "198.51.100.1"), pool("c"),
	})
	wants := []string{`"192.0.2.15-192.0.2.20": overlaps 192.0.2.0-192.0.2.15 of pool a`, `"a": is the name of another pool`, `pool c has no range`}
	if len(wrong) != len(wants) {
		t.Fatalf("%v, want %q", wrong, wants)
	}
	for i, want := range wants {
		if !strings.Contains(wrong[i].Error(), want) {
			t.Errorf("%v, want %s", wrong[i], want)
		}
	}
	if one := wrong[0]; one.Pool != 1 || one.Field != addresses.FieldRanges {
		t.Errorf("the first mistake is %+v, want one of the ranges of pool 1", one)
	}
	many := addresses.Pool{Name: "a", Ranges: slices.Repeat(pool("a", "192.0.2.1").Ranges, 100)}
	if n := len(addresses.Validate([]addresses.Pool{many})); n != 99 {
		t.Errorf("one address 100 times makes %d mistakes, want one for each that is too many", n)
	}
	if wrong := addresses.Validate([]addresses.Pool{pool("a", "192.0.2.0/28", "2001:db8::/64"), pool("b", "192.0.2.16")}); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// pool returns a pool with these ranges.
func pool(name string, ranges ...string) addresses.Pool {
	p := addresses.Pool{Name: name}
	for _, text := range ranges {
		r, err := addresses.ParseRange(text)
		if err != nil {
			panic(err) // a mistake of the test
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

func TestWithout(t *testing.T) {
	p := pool("a", "192.0.2.1-192.0.2.4", "2001:db8::1")
	for _, c := range []struct{ taken, want string }{
		{"", "192.0.2.1-192.0.2.4 2001:db8::1"},
		{"192.0.2.1", "192.0.2.2-192.0.2.4 2001:db8::1"},
		{"192.0.2.4 2001:db8::1", "192.0.2.1-192.0.2.3"},
		{"192.0.2.2 203.0.113.7 192.0.2.2 192.0.2.3", "192.0.2.1 192.0.2.4 2001:db8::1"},
		{"192.0.2.3 192.0.2.1 192.0.2.2 192.0.2.4", "2001:db8::1"},
	} {
		var taken []netip.Addr
		for text := range strings.FieldsSeq(c.taken) {
			taken = append(taken, netip.MustParseAddr(text))
		}
		var got []string
		for _, r := range p.Without(taken).Ranges {
			got = append(got, r.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("without %s: %v, want %s", c.taken, got, c.want)
		}
	}
	if len(p.Ranges) != 2 {
		t.Errorf("the pool that was given is another one afterwards: %v", p.Ranges)
	}
}

func TestEdges(t *testing.T) {
	for segment, want := range map[string]string{
		"192.0.2.0/24": "[192.0.2.0 192.0.2.255]", "192.0.2.9/29": "[192.0.2.8 192.0.2.15]", "192.0.2.2/31": "[]",
		"192.0.2.1/32": "[]", "2001:db8::5/64": "[2001:db8::]", "2001:db8::/127": "[]", "2001:db8::1/128": "[]",
	} {
		if got := fmt.Sprint(addresses.Edges(netip.MustParsePrefix(segment))); got != want {
			t.Errorf("%s: %s, want %s", segment, got, want)
		}
	}
	if got := addresses.Edges(netip.Prefix{}); len(got) > 0 {
		t.Errorf("of no segment: %v", got)
	}
}
