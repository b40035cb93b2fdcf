package project

import (
	"context"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/measure"
)

// Prices are what things cost in a location, and which types of servers are on offer there. What
// has no price in the list isn't free: a type of that kind isn't on offer.
func (p *Project) Prices(ctx context.Context, location string) (measure.Prices, error) {
	list, _, err := p.client.Pricing.Get(ctx)
	if err != nil {
		return measure.Prices{}, fmt.Errorf("asking for the prices: %w", err)
	}
	types, err := p.client.ServerType.All(ctx)
	if err != nil {
		return measure.Prices{}, fmt.Errorf("asking for the types of servers: %w", err)
	}
	prices := measure.Prices{Location: location, Currency: list.Currency}
	b := &priceBook{location: location}
	tells := slices.ContainsFunc(types, anyAvailable)
	for _, t := range types {
		if onOffer(t, location, tells) {
			b.server(&prices, t, list.ServerTypes)
		}
	}
	b.loadBalancers(&prices, list.LoadBalancerTypes)
	b.addresses(&prices, list)
	switch {
	case b.err != nil:
		return measure.Prices{}, fmt.Errorf("reading the prices: %w", b.err)
	case len(prices.LoadBalancers) == 0 && len(prices.Servers) == 0:
		return measure.Prices{}, fmt.Errorf("nothing has a price in location %q: "+
			"choose one that the API lists, such as nbg1", location)
	}
	return prices, nil
}

func anyAvailable(t *hcloud.ServerType) bool {
	available := func(l hcloud.ServerTypeLocation) bool { return l.Available }
	return slices.ContainsFunc(t.Locations, available)
}

// onOffer reports whether a type of server can be had in a location now. The API tells which are
// sold out, or of none that it is available.
func onOffer(t *hcloud.ServerType, location string, tells bool) bool {
	return !t.IsDeprecated() && slices.ContainsFunc(t.Locations, func(l hcloud.ServerTypeLocation) bool {
		return l.Location != nil && l.Location.Name == location &&
			!l.IsDeprecated() && (l.Available || !tells)
	})
}

// priceBook reads prices, and keeps the first error.
type priceBook struct {
	location string
	err      error
}

// price reads amounts as the API writes them; nil: there is none.
func (b *priceBook) price(hourly, monthly string) *measure.Price {
	if hourly == "" && monthly == "" {
		return nil
	}
	return &measure.Price{Hourly: b.money(hourly), Monthly: b.money(monthly)}
}

func (b *priceBook) money(text string) measure.Money {
	if text == "" {
		return 0
	}
	amount, err := measure.ParseMoney(text)
	if err != nil && b.err == nil {
		b.err = err
	}
	return amount
}

// server adds a type, by the price list, or else by what the type says of itself.
func (b *priceBook) server(
	prices *measure.Prices, t *hcloud.ServerType, list []hcloud.ServerTypePricing,
) {
	rows := t.Pricings
	for _, of := range list {
		if of.ServerType != nil && of.ServerType.Name == t.Name {
			rows = of.Pricings
		}
	}
	for _, row := range rows {
		if row.Location == nil || row.Location.Name != b.location {
			continue
		}
		if price := b.price(row.Hourly.Gross, row.Monthly.Gross); price != nil {
			prices.Servers = append(prices.Servers, measure.ServerType{
				Name: t.Name, Architecture: string(t.Architecture), Price: *price,
			})
		}
	}
}

// loadBalancers adds what the types of load balancers cost.
func (b *priceBook) loadBalancers(prices *measure.Prices, list []hcloud.LoadBalancerTypePricing) {
	prices.LoadBalancers = map[string]measure.Price{}
	for _, t := range list {
		for _, row := range t.Pricings {
			if t.LoadBalancerType == nil || row.Location == nil || row.Location.Name != b.location {
				continue
			}
			if price := b.price(row.Hourly.Gross, row.Monthly.Gross); price != nil {
				prices.LoadBalancers[t.LoadBalancerType.Name] = *price
			}
		}
	}
}

// addresses adds what public addresses cost.
func (b *priceBook) addresses(prices *measure.Prices, list hcloud.Pricing) {
	for _, of := range list.PrimaryIPs {
		for _, row := range of.Pricings {
			if of.Type == string(hcloud.PrimaryIPTypeIPv4) && row.Location == b.location {
				prices.IPv4 = b.price(row.Hourly.Gross, row.Monthly.Gross)
			}
		}
	}
	for _, of := range list.FloatingIPs {
		for _, row := range of.Pricings {
			if of.Type == hcloud.FloatingIPTypeIPv6 && row.Location != nil &&
				row.Location.Name == b.location {
				prices.FloatingIP = b.price("", row.Monthly.Gross)
			}
		}
	}
}
