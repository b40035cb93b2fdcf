package robot

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/underlay-ccm/underlay/internal/requests"
)

// Failover is an address, or an IPv6 net, that can be routed to any server of
// the account.
type Failover struct {
	IP netip.Addr // the net's first address
	// Server is the number of the server that it was ordered with.
	Server int64
	// Active is the main address of the server that it is routed to, for IPv6
	// that of the server's main net; zero: nowhere.
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

// Failovers returns every failover address of the account, or an error: never a
// part.
func (c *Client) Failovers(ctx context.Context) ([]Failover, error) {
	var bodies []failoverBody
	err := c.do(ctx, listFailovers, "/failover", nil, &bodies)
	if err != nil && !IsCode(err, CodeNotFound) { // else there is none
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

// RouteFailover routes a failover address to a server, by the server's main
// address, for IPv6 that of its main net. It is urgent, and returns when it is
// done, after a minute. After an error nobody knows where the address is; the
// caller looks before it tries again. Where it is already there, the code is
// CodeAlreadyRouted.
func (c *Client) RouteFailover(ctx context.Context, ip, to netip.Addr) (Failover, error) {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	f, err := c.failover(ctx, routeFailover, ip, url.Values{"active_server_ip": {to.String()}})
	if err == nil && f.Active != to {
		err = fmt.Errorf("the answer says that it is routed to %s", f.Active)
	}
	if err != nil {
		return Failover{}, fmt.Errorf("routing failover address %s to %s: %w", ip, to, err)
	}
	return f, nil
}

// FailoverWait is how long a request to route a failover address would be held back for the
// operation's quota, if it were sent now with a priority; 0: not at all.
func (c *Client) FailoverWait(p requests.Priority) (wait time.Duration) {
	q := c.quotas[routeFailover]
	q.queue.Change(func(now time.Time) { wait = max(0, q.Wait(p, now)) })
	return wait
}

// UnrouteFailover routes a failover address nowhere. Else it is like
// RouteFailover.
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
		err = fmt.Errorf("the answer is about %s", f.IP)
	}
	return f, err
}
