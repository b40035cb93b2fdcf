package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/test/demo/state"
)

// joinEvery is how often the cloud is searched for servers that need a kubelet, or no longer do.
const joinEvery = 500 * time.Millisecond

// hold keeps the cluster running and prints its changes until ctx ends. A server that the user
// creates joins; the kubelet of a deleted one is stopped.
func (d *demo) hold(ctx context.Context) error {
	folder, err := d.offer(ctx)
	if err != nil {
		return err
	}
	d.print(d.playground(folder))
	d.holding = true
	tenants := map[int64]string{}
	for _, s := range d.cluster.Cloud.Servers() {
		tenants[s.ID] = s.Name
	}
	last := time.Now()
	return d.follow(ctx, nil, func(bool) (bool, error) {
		if time.Since(last) >= joinEvery {
			d.settle(ctx, tenants)
			last = time.Now()
		}
		return false, nil
	})
}

// settle gives each server in the network a kubelet, and only those.
func (d *demo) settle(ctx context.Context, tenants map[int64]string) {
	servers := d.cluster.Cloud.Servers()
	for id, name := range tenants {
		if !slices.ContainsFunc(servers, func(s schema.Server) bool { return s.ID == id }) {
			// It returns an error because the server is deleted, which is the reason for the call.
			_ = d.cluster.DeleteServer(name)
			delete(tenants, id)
		}
	}
	for _, s := range servers {
		ours := slices.ContainsFunc(s.PrivateNet, func(n schema.ServerPrivateNet) bool {
			return n.Network == d.cluster.Network.ID
		})
		if _, known := tenants[s.ID]; known || !ours {
			continue
		}
		tenants[s.ID] = s.Name
		if err := d.cluster.Join(ctx, s); err != nil {
			d.print(d.Note(err.Error()))
		}
	}
}

// playground is a text about using the cluster, with the programs in a folder.
func (d *demo) playground(folder string) string {
	servers := d.state.Cloud.Servers
	first, lasting := servers[0].ID, d.routeTo(servers[len(servers)-1])
	return fmt.Sprintf(`
The cluster stays up. In another terminal:

  export PATH=%[1]s:$PATH

  underlayctl ui                    # all of it as a live page in the browser
  underlayctl nodes                 # or in the terminal: pools, routes, lb, doctor, inspect
  kubectl get nodes -o wide

  cloud /networks/%[2]d
  cloud /servers -d '{"name":"node-5","server_type":"cx22","location":"fsn1","image":"ubuntu-24.04","networks":[%[2]d]}'
  cloud /servers/%[3]d -X DELETE
  cloud /networks/%[2]d/actions/delete_route -d '{"destination":"%[4]s","gateway":"%[5]s"}'

Logs: %[6]s/*.log. What happens is shown here. Ctrl-C ends it all.

`, folder, d.cluster.Network.ID, first, lasting.Dst, lasting.Via, d.cluster.ControlPlane.Dir())
}

// routeTo returns the route of a server's Node, or the zero Route.
func (d *demo) routeTo(s state.Server) state.Route {
	i := slices.IndexFunc(d.state.Cloud.Routes, func(r state.Route) bool {
		return r.Via == s.PrivateIP
	})
	if i < 0 {
		return state.Route{}
	}
	return d.state.Cloud.Routes[i]
}
