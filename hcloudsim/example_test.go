package hcloudsim_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// A whole cloud in a test: no socket, no goroutine, the real client.
func Example() {
	sim := hcloudsim.New(hcloudsim.Options{Token: "secret", RouteLimit: 1})
	network, _ := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/16")})
	server, _ := sim.CreateServer(hcloudsim.ServerSeed{Name: "node-1", Network: network.ID})

	client := hcloud.NewClient(
		hcloud.WithToken("secret"),
		hcloud.WithEndpoint("http://sim/v1"),
		hcloud.WithHTTPClient(&http.Client{Transport: sim.Transport()}),
	)
	for _, destination := range []string{"10.0.128.0/24", "10.0.129.0/24"} {
		_, _, err := client.Network.AddRoute(context.Background(), &hcloud.Network{ID: network.ID},
			hcloud.NetworkAddRouteOpts{
				Route: hcloud.NetworkRoute{
					Destination: ipNet(destination),
					Gateway:     netip.MustParseAddr(server.PrivateNet[0].IP).AsSlice(),
				},
			})
		fmt.Println(destination, err)
	}
	for _, r := range sim.Requests() {
		fmt.Println(r.Method, r.Path, r.Status)
	}
	// Output:
	// 10.0.128.0/24 <nil>
	// 10.0.129.0/24 limit of 1 reached: network_route_limit (resource_limit_exceeded)
	// POST /v1/networks/1001/actions/add_route 201
	// POST /v1/networks/1001/actions/add_route 403
}
