package robot

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/underlay-ccm/underlay/internal/requests"
)

// Failover is an address or an IPv6 net that can be routed to any server of the account.
type Failover struct {
	IP netip.Addr // first address of the net
	// Server is the number of the server that it was ordered with.
	Server int64
	// Active is the main address of the server to which it is routed, for IPv6 that of the
	// server's main net, or the zero Addr if it is not routed.
	Active netip.Addr
}

type failoverBody struct {
	Failover struct {
		IP     netip.Addr  `json:"ip"`
		Number int64       `json:"server_number"`
		Active *netip.Addr `json:"active_server_ip"`
	} `json:"failover"`
}

func (b failoverBody) failover() (Failover, error) {
	f := Failover{IP: b.Failover.IP, Server: b.Failover.Number}
	if !f.IP.IsValid() || f.Server <= 0 {
		return Failover{}, fmt.Errorf("failover address %q of server %d: is none", f.IP, f.Server)
	}
	if b.Failover.Active != nil {
		f.Active = *b.Failover.Active
	}
	return f, nil
}

// Failovers returns all failover addresses of the account, never a part.
func (c *Client) Failovers(ctx context.Context) ([]Failover, error) {
	var bodies []failoverBody
	err := c.do(ctx, listFailovers, "/failover", nil, &bodies)
	if err != nil && !IsCode(err, CodeNotFound) { // otherwise the account has no failover address
		return nil, fmt.Errorf("listing failover addresses: %w", err)
	}
	var found []Failover
	for _, b := range bodies {
		f, err := b.failover()
		if err != nil {
			return nil, fmt.Errorf("listing failover addresses: %w", err)
		}
		found = append(found, f)
	}
	return found, nil
}

// RouteFailover routes a failover address to the server with the main address to, for IPv6 that
// of its main net, or removes the routing for the zero Addr. It is urgent, and returns when that is
// done, after a minute. After an error, the routing is unknown: the caller reads it before it
// retries. The code is CodeAlreadyRouted if the address was routed there before.
func (c *Client) RouteFailover(ctx context.Context, ip, to netip.Addr) (Failover, error) {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	op, form := unrouteFailover, url.Values(nil)
	if to.IsValid() {
		op, form = routeFailover, url.Values{"active_server_ip": {to.String()}}
	}
	var body failoverBody
	err := c.do(ctx, op, "/failover/"+ip.String(), form, &body)
	var f Failover
	if err == nil {
		f, err = body.failover()
	}
	if err == nil && (f.IP != ip || to.IsValid() && f.Active != to) {
		err = fmt.Errorf("according to the response, %s is routed to %s", f.IP, f.Active)
	}
	if err != nil {
		return Failover{}, fmt.Errorf("routing failover address %s to %s: %w", ip, to, err)
	}
	return f, nil
}

// FailoverWait returns how long the quota would delay a request to route a failover address now.
func (c *Client) FailoverWait(p requests.Priority) (wait time.Duration) {
	q := c.quotas[routeFailover]
	q.queue.Change(func(now time.Time) { wait = max(0, q.Wait(p, now)) })
	return wait
}
