package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// Nodes reads the cluster's Nodes from a cache.
type Nodes interface {
	// All returns all Nodes, or an error before they are read. Callers must not change them.
	All() ([]*kube.Node, error)
	// Own returns this machine's Node, or nil. It may lack fields other than name, labels,
	// addresses, podCIDRs and the annotation with the report.
	Own() *corev1.Node
	// Subscribe calls own for each change of this machine's Node, and other for other Nodes.
	Subscribe(own func(old, now *corev1.Node), other func(name string)) error
}

// Mover is a mover of the configuration: the pools of its addresses, and their announcer.
type Mover struct {
	Name  string
	Pools []addresses.Pool
	// Together: all nodes that the ledger names for an address hold it; else one of them does.
	Together bool
	// Routed: a provider chooses the node that receives an address's packets, whatever the ledger
	// contains, so packets for addresses of other nodes may arrive here.
	Routed bool
	addresses.Announcer
}

// ConfigMaps reads the ledger's namespace. client-go's typed client implements it.
type ConfigMaps interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// NodePatcher patches Nodes. client-go's typed client implements it.
type NodePatcher interface {
	Patch(
		ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions,
		subresources ...string,
	) (*corev1.Node, error)
}

// Neighbors is the kernel's neighbor table.
type Neighbors interface {
	// Hardware returns the hardware addresses that the table has.
	Hardware(ctx context.Context) (map[netip.Addr]net.HardwareAddr, error)
	// Solicit makes the kernel resolve neighbors on this machine's segments, without waiting for them.
	Solicit(ctx context.Context, neighbors []netip.Addr) error
}

// Check checks an HTTP server's health, limited by ctx. It returns nil if the server is healthy,
// ErrUnready if it responds that it is not, and ErrRefused if the machine refuses the connection.
type Check func(ctx context.Context, at netip.AddrPort) error

var (
	// ErrRefused means that the machine is up and no process listens at the port.
	ErrRefused = errors.New("nothing listens at the port")
	// ErrUnready means that the server responded that it does not serve.
	ErrUnready = errors.New("it reports that it is not ready")
)
