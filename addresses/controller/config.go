package controller

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/promauto"
)

const Name = "service-address-controller"

// Pool is a pool of addresses, the namespaces that may use it and the mover of its addresses.
type Pool struct {
	addresses.Pool
	// Namespaces selects the namespaces whose Services may use the pool; nil selects all.
	Namespaces labels.Selector
	// Mover is addresses.Layer2, addresses.BGP, which agents implement, or a key of Config.Routers.
	Mover addresses.Mover
}

// Router routes addresses to nodes through an API. Its methods are called concurrently, but Route
// never twice at a time for the same address.
type Router interface {
	// Routed returns the provider ID of the node that each address is routed to, or "" if it is not
	// routed. Addresses that the API does not list are omitted.
	Routed(context.Context) (map[netip.Addr]string, error)
	// Route routes an address to a node and returns when that is done, which may take a minute. It
	// reads the current route before it changes anything. After an error the address may be routed
	// nevertheless, unless the error is an *addresses.Unrouted, which names the cause.
	Route(ctx context.Context, address netip.Addr, to addresses.Destination) error
}

// Routing is a Router and its properties.
type Routing struct {
	Router
	// Answering is set if the agent of a node must answer for the address to receive its traffic.
	Answering bool
	// Serves reports whether addresses can be routed to a node by its provider ID; nil allows all.
	Serves func(providerID string) bool
	// Scarce is set if the API limits the number of moves. Then no address moves only for balance.
	Scarce bool
}

// Config contains the dependencies and settings of a Controller. All fields but Namespaces,
// Routers, Classless and Balancers are required.
type Config struct {
	// Client's rate limit bounds how fast Services get their addresses.
	Client   kubernetes.Interface
	Services coreinformers.ServiceInformer
	Nodes    coreinformers.NodeInformer
	Slices   discoveryinformers.EndpointSliceInformer
	// Namespaces is required if a pool has a selector.
	Namespaces coreinformers.NamespaceInformer
	Pools      []Pool // valid, see addresses.Validate
	Routers    map[addresses.Mover]Routing
	// Classless also serves Services without a loadBalancerClass.
	Classless bool
	// Balancers is set if a cloud's load balancer controller runs too. It owns Services without a
	// class that have its finalizer.
	Balancers bool
	// Namespace is the namespace of the stored ledger.
	Namespace string
	Recorder  record.EventRecorder
	Registry  promauto.Registry
}

func poolOf(pools []Pool, address netip.Addr) (Pool, bool) {
	for _, p := range pools {
		if p.Contains(address) {
			return p, true
		}
	}
	return Pool{}, false
}

// free returns the pools without taken addresses.
func free(pools []Pool, taken []netip.Addr) []addresses.Pool {
	left := make([]addresses.Pool, len(pools))
	for i, p := range pools {
		left[i] = p.Without(taken)
	}
	return left
}
