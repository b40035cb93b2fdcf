package hetzner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/lb"
)

// A target of type server can have one of the server's addresses (`server.ip`), which hcloud-go
// v2.52.0 neither sends nor reads. This file adds it.

type addressTarget struct {
	Type   hcloud.LoadBalancerTargetType `json:"type"`
	Server addressedServer               `json:"server"`
}

type addressedServer struct {
	ID int64  `json:"id"`
	IP string `json:"ip"`
}

// changePod sends an action, add_target or remove_target, for an address of a server.
func (l *LoadBalancers) changePod(ctx context.Context, balancer int64, action string, t lb.Target) (*hcloud.Action, error) {
	body, err := json.Marshal(addressTarget{
		Type: hcloud.LoadBalancerTargetTypeServer, Server: addressedServer{ID: t.Server, IP: t.Address.String()},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding target %s: %w", t, err)
	}
	request, err := l.client.api.NewRequest(ctx, http.MethodPost, fmt.Sprintf("/load_balancers/%d/actions/%s", balancer, action), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var response struct {
		Action schema.Action `json:"action"`
	}
	if _, err := l.client.api.Do(request, &response); err != nil {
		return nil, err
	}
	return hcloud.ActionFromSchema(response.Action), nil
}

func (l *LoadBalancers) page(
	ctx context.Context, opts hcloud.LoadBalancerListOpts,
) (states []lb.State, response *hcloud.Response, err error) {
	found, response, err := l.client.api.LoadBalancer.List(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	addresses, err := readAddresses(response.Body)
	if err != nil {
		return nil, nil, err
	}
	for _, balancer := range found {
		states = append(states, balancerState(balancer, addresses[balancer.ID]))
	}
	return states, response, nil
}

// readAddresses reads the address of each target of type server from a list of load balancers, by
// the load balancer's ID and in the targets' order. hcloud-go keeps the response body readable.
func readAddresses(list io.Reader) (map[int64][]string, error) {
	var body struct {
		LoadBalancers []struct {
			ID      int64           `json:"id"`
			Targets []addressTarget `json:"targets"`
		} `json:"load_balancers"`
	}
	if err := json.NewDecoder(list).Decode(&body); err != nil {
		return nil, fmt.Errorf("reading the addresses of targets: %w", err)
	}
	addresses := make(map[int64][]string, len(body.LoadBalancers))
	for _, balancer := range body.LoadBalancers {
		texts := make([]string, len(balancer.Targets))
		for i, t := range balancer.Targets {
			texts[i] = t.Server.IP
		}
		addresses[balancer.ID] = texts
	}
	return addresses, nil
}

// podTarget returns false unless the address is IPv6, a pod's: the API reports an address for
// every server, usually its primary IPv4, which stands for the server itself.
func podTarget(server int64, address string) (lb.Target, bool) {
	ip, err := netip.ParseAddr(address)
	return lb.Target{Server: server, Address: ip}, err == nil && ip.Is6() && !ip.Is4In6()
}
