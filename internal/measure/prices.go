package measure

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Money is an amount in millionths of the currency's unit.
type Money int64

const unit Money = 1_000_000

// ParseMoney reads a decimal number as the API has it ("0.0063000000000000"), and rounds up.
func ParseMoney(text string) (Money, error) {
	whole, part, _ := strings.Cut(text, ".")
	digits := part + strings.Repeat("0", 6)
	amount, err := decimal(whole + digits[:6])
	if err == nil && strings.Trim(part, "0123456789") != "" {
		err = errors.New("a character is no digit")
	}
	if err != nil || whole == "" {
		return 0, fmt.Errorf("%q is no amount of money: write it like 0.50", text)
	}
	if len(part) > 6 && strings.Trim(part[6:], "0") != "" {
		amount++
	}
	return amount, nil
}

// decimal reads digits alone.
func decimal(digits string) (Money, error) {
	var m Money
	for _, d := range digits {
		if d < '0' || d > '9' || m > (math.MaxInt64-9)/10 {
			return 0, fmt.Errorf("%q is no number", digits)
		}
		m = 10*m + Money(d-'0')
	}
	return m, nil
}

// String renders it with two decimals, rounded up: what something costs at most.
func (m Money) String() string {
	cents := (m + unit/100 - 1) / (unit / 100)
	return fmt.Sprintf("%d.%02d", cents/100, cents%100)
}

// Fine renders it with four decimals, rounded up: prices of an hour are fractions of a cent.
func (m Money) Fine() string {
	parts := (m + unit/10_000 - 1) / (unit / 10_000)
	return fmt.Sprintf("%d.%04d", parts/10_000, parts%10_000)
}

// Price is what a thing costs, gross. Without Hourly it is paid by the month.
type Price struct {
	Hourly  Money `json:"hourly"`
	Monthly Money `json:"monthly"`
}

// ServerType is one that is on offer.
type ServerType struct {
	Name         string
	Architecture string // x86, arm
	Price        Price
}

// Prices are those of a location, in one currency.
type Prices struct {
	Location string
	Currency string
	// Servers are the types that can be had there now: neither deprecated nor sold out, as far as
	// the API tells.
	Servers []ServerType
	// LoadBalancers are their types.
	LoadBalancers map[string]Price
	// IPv4 is a primary IPv4 address; those of IPv6 cost no more. nil: its price is not known.
	IPv4 *Price
	// FloatingIP is one of IPv6, of which the experiments make one. nil: its price is not known.
	FloatingIP *Price
}

// lack says why it isn't known what these things cost; empty: it is. What has no price isn't free.
func (p Prices) lack(t Things) string {
	const unknown = "the API tells no price of a %s in location %s: choose another --location"
	switch {
	case p.IPv4 == nil && t.Servers+t.LoadBalancers+t.PrimaryIPs > 0:
		return fmt.Sprintf(unknown, "primary IPv4 address", p.Location)
	case p.FloatingIP == nil && t.FloatingIPs > 0:
		return fmt.Sprintf(unknown, "floating IPv6 address", p.Location)
	}
	return ""
}

// Cheapest is the cheapest type of server of an architecture.
func (p Prices) Cheapest(architecture string) (ServerType, error) {
	of := slices.DeleteFunc(slices.Clone(p.Servers), func(t ServerType) bool { return t.Architecture != architecture })
	if len(of) == 0 {
		return ServerType{}, fmt.Errorf("no server type of architecture %s is on offer in location %s: choose another --location, or --server-type", architecture, p.Location)
	}
	return slices.MinFunc(of, func(a, b ServerType) int {
		return cmp.Or(cmp.Compare(a.Price.Hourly, b.Price.Hourly), cmp.Compare(a.Name, b.Name))
	}), nil
}

// server is a type that is on offer.
func (p Prices) server(name string) (ServerType, bool) {
	i := slices.IndexFunc(p.Servers, func(t ServerType) bool { return t.Name == name })
	if i < 0 {
		return ServerType{}, false
	}
	return p.Servers[i], true
}

func (p Prices) serverNames() (names []string) {
	for _, t := range p.Servers {
		names = append(names, t.Name)
	}
	return names
}

func (p Prices) loadBalancerNames() []string {
	return slices.Sorted(maps.Keys(p.LoadBalancers))
}

// MarshalJSON writes a number in the currency's unit.
func (m Money) MarshalJSON() ([]byte, error) { return []byte(m.Fine()), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Money) UnmarshalJSON(text []byte) (err error) {
	*m, err = ParseMoney(string(text))
	return err
}
