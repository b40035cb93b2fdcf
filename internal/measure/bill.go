package measure

import "time"

// Bill is what a plan costs at most.
type Bill struct {
	Currency string `json:"currency"`
	// Hours are how many are charged of what has an hourly price.
	Hours int    `json:"hours"`
	Items []Item `json:"items"`
	Total Money  `json:"total"`
}

// Item is a line of a bill.
type Item struct {
	What  string `json:"what"`
	Count int    `json:"count"`
	Each  Price  `json:"each"`
	// ByMonth: it has no hourly price, so a whole month is paid.
	ByMonth bool  `json:"byMonth,omitempty"`
	Cost    Money `json:"cost"`
}

// bill is what these things cost at most.
func (p Plan) bill(prices Prices, t Things, w Wanted) Bill {
	b := Bill{Currency: prices.Currency, Hours: Hours(w.TimeLimit + w.Cleaning)}
	server, _ := prices.server(p.ServerType)
	b.add("server "+p.ServerType, t.Servers, server.Price)
	b.add("load balancer "+p.LoadBalancerType, t.LoadBalancers, prices.LoadBalancers[p.LoadBalancerType])
	// A server's address has a price of its own, and who knows whether a load balancer's has.
	b.add("public IPv4 address", t.Servers+t.LoadBalancers, value(prices.IPv4))
	b.add("primary IP", t.PrimaryIPs, value(prices.IPv4))
	b.add("floating IP", t.FloatingIPs, value(prices.FloatingIP))
	b.add("network", t.Networks, Price{})
	return b
}

// underWay is how long requests may take that were under way when the time was over: one that
// changes something isn't cut short.
const underWay = time.Minute

// Hours are how many are charged at most of a thing that is to exist for so long: also a started
// hour is paid, and no source tells whether hours start with the thing or by the clock.
func Hours(d time.Duration) int {
	return int((d+underWay+time.Hour-1)/time.Hour) + 1
}

// add adds a line, if there is something to add.
func (b *Bill) add(what string, count int, each Price) {
	if count == 0 {
		return
	}
	i := Item{What: what, Count: count, Each: each, ByMonth: each.Hourly == 0 && each.Monthly > 0}
	i.Cost = each.Hourly * Money(count*b.Hours)
	if i.ByMonth {
		i.Cost = each.Monthly * Money(count)
	}
	b.Items = append(b.Items, i)
	b.Total += i.Cost
}
