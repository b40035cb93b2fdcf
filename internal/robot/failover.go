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
// of its main net. It is urgent, and returns when the address is routed, after a minute. After
// an error, the routing is unknown: the caller reads it before it retries. The code is
// CodeAlreadyRouted if the address was routed there before.
func (c *Client) RouteFailover(ctx context.Context, ip, to netip.Addr) (Failover, error) {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	f, err := c.failover(ctx, routeFailover, ip, url.Values{"active_server_ip": {to.String()}})
	if err == nil && f.Active != to {
		err = fmt.Errorf("according to the response it is routed to %s", f.Active)
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

// UnrouteFailover removes the routing of a failover address. Otherwise it is like RouteFailover.
func (c *Client) UnrouteFailover(ctx context.Context, ip netip.Addr) (Failover, error) {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	f, err := c.failover(ctx, unrouteFailover, ip, nil)
	if err != nil {
		return Failover{}, fmt.Errorf("routing failover address %s nowhere: %w", ip, err)
	}
	return f, nil
}

func (c *Client) failover(ctx context.Context, op operation, ip netip.Addr, form url.Values) (Failover, error) {
	var body failoverBody
	if err := c.do(ctx, op, "/failover/"+ip.String(), form, &body); err != nil {
		return Failover{}, err
	}
	f, err := body.failover()
	if err == nil && f.IP != ip {
		err = fmt.Errorf("the response is about %s", f.IP)
	}
	return f, err
}
