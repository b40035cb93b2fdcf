package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// aim is a target of a load balancer: a server at its private address, at its public one, or at a
// certain one of IPv6.
type aim struct {
	server  *Server
	private bool
	at      netip.Addr // zero: the server's primary IPv4
}

// target makes a server a target. The function that it returns takes it away.
func (b *Bench) target(ctx context.Context, lb *LoadBalancer, a aim) (remove func(), err error) {
	_, err = b.Change(ctx, "adding a target", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		if a.at.IsValid() {
			return b.addressTarget(ctx, lb, "add_target", a)
		}
		return b.client().LoadBalancer.AddServerTarget(ctx, lb.ref(), hcloud.LoadBalancerAddServerTargetOpts{
			Server: a.server.ref(), UsePrivateIP: &a.private,
		})
	})
	if err != nil {
		return func() {}, err
	}
	return func() { b.drop(ctx, lb, a) }, nil
}

// drop takes a target away; it may be gone.
func (b *Bench) drop(ctx context.Context, lb *LoadBalancer, a aim) {
	b.Cleanup(ctx, "removing a target", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		if a.at.IsValid() {
			return b.addressTarget(ctx, lb, "remove_target", a)
		}
		return b.client().LoadBalancer.RemoveServerTarget(ctx, lb.ref(), a.server.ref())
	})
}

// addressTarget adds or removes a server at one of its addresses, which hcloud-go v2.52.0 can't send.
func (b *Bench) addressTarget(ctx context.Context, lb *LoadBalancer, action string, a aim) (*hcloud.Action, *hcloud.Response, error) {
	body, err := json.Marshal(map[string]any{
		"type": hcloud.LoadBalancerTargetTypeServer, "server": map[string]any{"id": a.server.ID, "ip": a.at},
	})
	if err != nil {
		return nil, nil, err
	}
	path := fmt.Sprintf("/load_balancers/%d/actions/%s", lb.ID, action)
	request, err := b.client().NewRequest(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	var answer struct {
		Action schema.Action `json:"action"`
	}
	got, err := b.client().Do(request, &answer)
	if err != nil {
		return nil, got, err
	}
	return hcloud.ActionFromSchema(answer.Action), got, nil
}

// withoutTargets takes away the targets that the load balancer has.
func (b *Bench) withoutTargets(ctx context.Context, lb *LoadBalancer) error {
	err := lookFor(ctx, settles, healthLook, func() (gone bool, err error) {
		now, err := b.balancerNow(ctx, lb)
		if err != nil || len(now.Targets) == 0 {
			return true, err
		}
		for _, t := range now.Targets {
			if t.IP != nil {
				b.Cleanup(ctx, "removing a target", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
					return b.client().LoadBalancer.RemoveIPTarget(ctx, lb.ref(), net.ParseIP(t.IP.IP))
				})
			}
			if t.Server == nil {
				continue
			}
			s := &Server{ID: t.Server.Server.ID}
			b.drop(ctx, lb, aim{server: s})
			// hcloud-go doesn't tell at which address it is a target.
			if known := b.known(s.ID); known != nil && known.Public6.IsValid() {
				b.drop(ctx, lb, aim{server: s, at: known.Public6})
			}
		}
		return false, nil
	})
	if errors.Is(err, errLate) {
		err = errors.New("the load balancer has targets that can't be taken away")
	}
	return err
}

// known is the shared server with an ID, or nil.
func (b *Bench) known(id int64) *Server {
	for _, s := range b.shared.servers {
		if s.thing != nil && s.thing.ID == id {
			return s.thing
		}
	}
	return nil
}
