package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// AddressFamily chooses the public addresses that Nodes get.
type AddressFamily string

const (
	IPv4      AddressFamily = "ipv4"
	IPv6      AddressFamily = "ipv6"
	DualStack AddressFamily = "dualstack"
)

// Instances answers upstream's node controllers.
type Instances struct {
	Servers  Servers
	Nodes    corelisters.NodeLister
	Recorder record.EventRecorder
	// Family chooses the external addresses.
	Family AddressFamily
	// InNetwork: Nodes are to have an address in the network; one whose server
	// isn't attached yet is not described yet.
	InNetwork bool
	// Gated: a Node is not described before its NetworkUnavailable condition
	// keeps pods away or says that its routes stand. Set it where, and only
	// where, somebody sets that condition.
	Gated bool
	// Index, if not nil, saves indexing the same server list again.
	Index *Index
}

var _ cloudprovider.InstancesV2 = (*Instances)(nil)

// errNotYet: ask again, which upstream does.
var errNotYet = errors.New("not yet")

// notReadyMaxAge is how old the server list may be when a Node that isn't ready
// is judged by it, which is asked every few seconds: 60 lists an hour. A Node
// that has only just stopped being ready is judged by a list made since.
const notReadyMaxAge = 60 * time.Second

// InstanceMetadata describes the Node's server.
func (i *Instances) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	if i.Gated {
		if reason := gate(node); reason != "" {
			return notYet(node, reason)
		}
	}
	server, err := i.find(ctx, node)
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:       server.ProviderID(),
		InstanceType:     server.Type,
		NodeAddresses:    i.addresses(node, server),
		Zone:             zone(server.Location),
		Region:           server.Location,
		AdditionalLabels: map[string]string{"instance.hetzner.cloud/provided-by": "cloud"},
	}, nil
}

// gate says why nothing but the taint of a Node that isn't described yet keeps
// pods away from it; empty: its routes stand, or something else does. The
// scheduler knows taints and no conditions, and a Node's taints follow its
// conditions a moment later, by kube-controller-manager.
func gate(node *corev1.Node) string {
	c := kube.Condition(node, corev1.NodeNetworkUnavailable)
	switch {
	case c == nil:
		return "its NetworkUnavailable condition is not set"
	case c.Status == corev1.ConditionFalse || !kube.Tainted(node, cloudproviderapi.TaintExternalCloudProvider):
		return ""
	case !kube.Tainted(node, corev1.TaintNodeNetworkUnavailable):
		return "its NetworkUnavailable condition has not become a taint"
	default:
		return ""
	}
}

// notYet makes upstream wait. Nothing at all is its word for "skip this Node
// until it changes", which setting condition and taint does; but it reads the
// answer for a Node that was initialized before without looking.
func notYet(node *corev1.Node, reason string) (*cloudprovider.InstanceMetadata, error) {
	if kube.Tainted(node, cloudproviderapi.TaintExternalCloudProvider) {
		return nil, nil
	}
	return nil, fmt.Errorf("node %s: %s: %w", node.Name, reason, errNotYet)
}

// find matches a Node with a server. Attachment may come later.
func (i *Instances) find(ctx context.Context, node *corev1.Node) (Server, error) {
	server, err := i.lookup(ctx, node, time.Time{})
	detached := func() bool { return err == nil && i.InNetwork && !server.PrivateIP.IsValid() }
	if detached() || errors.Is(err, ErrNoMatch) {
		// The API server's clock may be behind ours, and then the list too old.
		server, err = i.lookup(ctx, node, time.Now().Add(-freshEnough))
	}
	if detached() {
		err = fmt.Errorf("node %s: server %s is not attached to the network: %w", node.Name, server.ProviderID(), errNotYet)
	}
	if errors.Is(err, ErrAmbiguous) {
		i.Recorder.Event(node, corev1.EventTypeWarning, "ServerAmbiguous", err.Error())
	}
	return server, err
}

func (i *Instances) lookup(ctx context.Context, node *corev1.Node, since time.Time) (Server, error) {
	ix, err := i.Index.look(ctx, i.Servers, since, node)
	if err != nil {
		return Server{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	server, err := ix.match(node)
	if err != nil {
		return Server{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	return server, nil
}

// InstanceExists is asked about Nodes that aren't ready, and a false answer
// deletes the Node. It is false only if a list that shows another Node's server
// lacks this Node's, and the provider, asked for this one alone, has none.
func (i *Instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		// No provider ID yet, or somebody else's: not ours to declare absent.
		return true, nil
	}
	now := time.Now()
	since := now.Add(-notReadyMaxAge)
	if ready := kube.Condition(node, corev1.NodeReady); ready != nil && ready.LastTransitionTime.After(since) {
		since = ready.LastTransitionTime.Time
	}
	servers, err := i.Servers.List(ctx, since)
	if err != nil {
		return true, fmt.Errorf("node %s: %w", node.Name, err)
	}
	ix := i.Index.of(servers)
	if ix.byID[id] != nil {
		return true, nil
	}
	nodes, err := i.Nodes.List(labels.Everything())
	if err != nil {
		return true, fmt.Errorf("listing Nodes: %w", err)
	}
	if err := ix.doubt(nodes); err != nil {
		return true, fmt.Errorf("node %s is not declared absent: %w", node.Name, err)
	}
	switch _, err := i.Servers.Get(ctx, id); {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrNoServer):
		return false, nil
	default:
		return true, fmt.Errorf("node %s: %w", node.Name, err)
	}
}

// InstanceShutdown reports whether the Node's server is powered off. Upstream asks
// right behind InstanceExists, so the list is as new as that one's.
func (i *Instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	server, err := i.lookup(ctx, node, time.Now().Add(-notReadyMaxAge))
	if errors.Is(err, kube.ErrOtherProvider) {
		return false, nil
	}
	return server.Off, err
}

// addresses lists what the Node is reached by. The host name is the Node's own,
// so that renaming a server changes nothing.
//
// Cloud-provider keeps, of each type, only what the kubelet was given (--node-ip).
// So an IPv6 address that was given beside the private one is internal as well,
// whatever the family: as an external one it would cost the Node its public IPv4
// address. Where the private one was not given it is external, or the private one
// would be lost.
func (i *Instances) addresses(node *corev1.Node, s Server) []corev1.NodeAddress {
	out := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: node.Name}}
	add := func(kind corev1.NodeAddressType, a netip.Addr) {
		if a.IsValid() {
			out = append(out, corev1.NodeAddress{Type: kind, Address: a.String()})
		}
	}
	provided := kube.ProvidedIPs(node)
	own, given := s.ownIPv6(provided)
	internal := given && (!s.PrivateIP.IsValid() || slices.Contains(provided, s.PrivateIP))
	if i.Family != IPv6 {
		add(corev1.NodeExternalIP, s.PublicIPv4)
	}
	if !internal && (given || i.Family != IPv4) {
		add(corev1.NodeExternalIP, own)
	}
	add(corev1.NodeInternalIP, s.PrivateIP)
	if internal {
		add(corev1.NodeInternalIP, own)
	}
	return out
}

// ownIPv6 is the address of the server's prefix that its kubelet was given, or
// else the first, which the provider takes for the server's own.
func (s Server) ownIPv6(provided []netip.Addr) (own netip.Addr, given bool) {
	if !s.PublicIPv6.IsValid() {
		return own, false
	}
	prefix := s.PublicIPv6.Masked()
	if at := slices.IndexFunc(provided, prefix.Contains); at >= 0 {
		return provided[at], true
	}
	return prefix.Addr().Next(), false
}

// zone keeps the names that zones had while the API still told data centers
// apart: volumes and affinities of running clusters are bound to them. A
// location that came later is its own zone.
func zone(location string) string {
	switch location {
	case "nbg1":
		return "nbg1-dc3"
	case "fsn1":
		return "fsn1-dc14"
	case "hel1":
		return "hel1-dc2"
	case "ash", "hil", "sin":
		return location + "-dc1"
	default:
		return location
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
