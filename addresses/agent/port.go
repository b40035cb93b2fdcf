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

// Mover holds addresses in one way. Set and State may be called before Run and while it runs; the
// agent calls Set from one goroutine.
type Mover interface {
	// Run works until the context ends, and leaves everything standing then: it announces nothing on
	// its way out. It calls changed when State may have changed.
	Run(ctx context.Context, changed func()) error
	// Set is given all that this node is to hold in this way, again and again, also the same.
	Set(w Want)
	State() State
}

// Nodes are all Nodes of the cluster, as far as this machine has read them.
type Nodes interface {
	// All returns all of them, or an error. They are not to be changed.
	All() ([]*kube.Node, error)
	// Own returns this machine's, or nil if there is none. It may have no more than its name, labels,
	// addresses, podCIDRs and the annotation with the report.
	Own() *corev1.Node
	// Subscribe calls own for each change of this machine's Node, and other with the name of each
	// other Node that changes.
	Subscribe(own func(old, now *corev1.Node), other func(name string)) error
}

// Want is what one mover is to do.
type Want struct {
	// Cluster is something that no other cluster has: the UID of the ledger's ConfigMap; empty: not
	// known yet.
	Cluster string
	// Node is this machine's, as far as the informer keeps it; nil: nobody knows it yet.
	Node *corev1.Node
	// Hold are the addresses that this node is to hold; Elsewhere the others that Services have.
	Hold      []Hold
	Elsewhere []netip.Addr
	// Doubt: nobody knows whether the ledger still says this.
	Doubt bool
}

// Hold is an address that this node is to hold.
type Hold struct {
	Address netip.Addr
	Epoch   uint64
	// Resumed: an earlier run of this node's agent held it by this epoch when it ended.
	Resumed bool
	// Held: a node has held it, so that no stranger is to be expected there.
	Held bool
}

// State is what a mover has come to.
type State struct {
	Held    []addresses.Hold
	Refused []addresses.Problem
	Routers []addresses.Router
	// Segments are those that addresses can be held on; nil: that is not known, or no matter.
	Segments []netip.Prefix
	// Announced counts the announcements so far, and Conflicts the times that somebody else claimed
	// an address.
	Announced, Conflicts uint64
}

// NamedMover is a mover with the pools whose addresses are its business.
type NamedMover struct {
	Name  string
	Pools []addresses.Pool
	// Together: all nodes that the ledger names for an address hold it at once. Where they can't, one
	// of them does.
	Together bool
	// Routed: a provider brings packets to the node that it leads an address to, whatever the ledger
	// says, so that those for addresses of other nodes may come here too.
	Routed bool
	Mover  Mover
}

// ConfigMaps are those of the ledger's namespace; client-go's typed client is such.
type ConfigMaps interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// NodePatcher writes Nodes; client-go's typed client is such.
type NodePatcher interface {
	Patch(
		ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions,
		subresources ...string,
	) (*corev1.Node, error)
}

// Neighbors is the kernel's table of neighbors.
type Neighbors interface {
	// Hardware are the hardware addresses of neighbors that the kernel knows.
	Hardware(ctx context.Context) (map[netip.Addr]net.HardwareAddr, error)
	// Ask makes the kernel ask for neighbors that it doesn't know, and doesn't wait for them. Those
	// that are on no segment of this machine are left out.
	Ask(ctx context.Context, neighbors []netip.Addr) error
}

// Check asks an HTTP server within the context's time. It returns nil if the server says that it is
// healthy, ErrUnready if it says that it is not, and ErrRefused if the machine is there and nobody
// listens at the port.
type Check func(ctx context.Context, at netip.AddrPort) error

var (
	// ErrRefused is what a machine answers at a port where nobody listens.
	ErrRefused = errors.New("nobody listens at the port")
	// ErrUnready is a server's answer that it does not serve.
	ErrUnready = errors.New("it says that it is not ready")
)
