package bgp

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Community marks what is announced, so that a router's policy can tell it: a standard one of two
// numbers of 16 bits (RFC 1997), or a large one of three of 32 bits (RFC 8092).
type Community struct {
	// Large: all three parts count; else A and B do.
	Large   bool
	A, B, C uint32
}

// wellKnown are the communities that have names (RFC 1997, RFC 7999, RFC 8326).
func wellKnown() map[string]Community {
	return map[string]Community{
		"no-export":         {A: 0xffff, B: 0xff01},
		"no-advertise":      {A: 0xffff, B: 0xff02},
		"blackhole":         {A: 0xffff, B: 666},
		"graceful-shutdown": {A: 0xffff, B: 0},
	}
}

// ParseCommunity reads 64512:100, 64512:1:2 or the name of a well-known community.
func ParseCommunity(text string) (Community, error) {
	if c, ok := wellKnown()[text]; ok {
		return c, nil
	}
	parts := strings.Split(text, ":")
	bits := 16
	if len(parts) == 3 {
		bits = 32
	}
	numbers := make([]uint32, len(parts))
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, bits)
		if err != nil || len(parts) < 2 || len(parts) > 3 || part != strconv.FormatUint(n, 10) {
			return Community{}, fmt.Errorf("community %q: write 64512:100 with numbers up to 65535, 64512:1:2 with numbers up to 4294967295, no-export, no-advertise, blackhole or graceful-shutdown", text)
		}
		numbers[i] = uint32(n)
	}
	c := Community{A: numbers[0], B: numbers[1]}
	if len(numbers) == 3 {
		c.Large, c.C = true, numbers[2]
	}
	return c, nil
}

// String is the community in numbers.
func (c Community) String() string {
	if c.Large {
		return fmt.Sprintf("%d:%d:%d", c.A, c.B, c.C)
	}
	return fmt.Sprintf("%d:%d", c.A, c.B)
}

func (c Community) compare(other Community) int {
	small := func(c Community) int {
		if c.Large {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(small(c), small(other)), cmp.Compare(c.A, other.A), cmp.Compare(c.B, other.B), cmp.Compare(c.C, other.C))
}
