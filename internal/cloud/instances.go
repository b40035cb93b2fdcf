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
	Machines *Machines
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
	// NetworkRange is the network's, where InNetwork. Private addresses of dedicated
	// servers are taken from their kubelets if they lie in it.
	NetworkRange func() netip.Prefix
	// ForwardPrivate: where there is no network, they are taken from anywhere.
	ForwardPrivate bool

	missing missing
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
	found, err := i.find(ctx, node)
	if err != nil {
		return nil, err
	}
	if found.Dedicated {
		return i.dedicatedMetadata(ctx, node, found)
	}
	server := *found
	addresses := i.addresses(node, server)
	for _, a := range kube.ProvidedIPs(node) {
		if !slices.ContainsFunc(addresses, func(known corev1.NodeAddress) bool { return known.Address == a.String() }) {
			return nil, fmt.Errorf("node %s: %w: %s is no address of server %d that its Node may have; correct the kubelet's --node-ip",
				node.Name, errOtherAddress, a, server.ID)
		}
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:       server.ProviderID(),
		InstanceType:     server.Type,
		NodeAddresses:    addresses,
		Zone:             zone(server.Region),
		Region:           server.Region,
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

// find matches a Node with its machine. Attachment may come later.
func (i *Instances) find(ctx context.Context, node *corev1.Node) (*Machine, error) {
	found, err := i.lookup(ctx, node, time.Time{})
	detached := func() bool { return found != nil && !found.Dedicated && i.InNetwork && !found.PrivateIP.IsValid() }
	if detached() || errors.Is(err, ErrNoMatch) {
		// The API server's clock may be behind ours, and then the list too old.
		found, err = i.lookup(ctx, node, time.Now().Add(-freshEnough))
	}
	if detached() {
		err = fmt.Errorf("node %s: server %s is not attached to the network: %w", node.Name, found.ProviderID(), errNotYet)
	}
	switch {
	case errors.Is(err, ErrAmbiguous):
		i.Recorder.Event(node, corev1.EventTypeWarning, "ServerAmbiguous", err.Error())
	case errors.Is(err, ErrNoMatch):
		err = errors.Join(err, i.noteMissing(ctx, node))
	case err == nil:
		i.missing.over(node.UID)
	}
	return found, err
}

func (i *Instances) lookup(ctx context.Context, node *corev1.Node, since time.Time) (*Machine, error) {
	found, err := i.Machines.find(ctx, node, since, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	return found, nil
}

// InstanceExists is asked about Nodes that aren't ready, and a false answer
// deletes the Node. It is false only if a list that shows another Node's server
// lacks this Node's, and the provider, asked for this one alone, has none.
func (i *Instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	if number, err := kube.ParseDedicatedID(node.Spec.ProviderID); err == nil {
		return i.dedicatedExists(ctx, node, number)
	}
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		// No provider ID yet, or somebody else's: not ours to declare absent.
		return true, nil
	}
	servers, err := i.Machines.Cloud.List(ctx, judgedSince(node, notReadyMaxAge))
	if err != nil {
		return true, fmt.Errorf("node %s: %w", node.Name, err)
	}
	ix := i.Machines.of(servers)
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
	switch _, err := i.Machines.Cloud.Get(ctx, id); {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrNoServer):
		return false, nil
	default:
		return true, fmt.Errorf("node %s: %w", node.Name, err)
	}
}

// judgedSince is how new a list has to be by which a Node that isn't ready is judged.
func judgedSince(node *corev1.Node, maxAge time.Duration) time.Time {
	since := time.Now().Add(-maxAge)
	if ready := kube.Condition(node, corev1.NodeReady); ready != nil && ready.LastTransitionTime.After(since) {
		return ready.LastTransitionTime.Time
	}
	return since
}

// InstanceShutdown reports whether the Node's server is powered off. Upstream asks
// right behind InstanceExists, so the list is as new as that one's. Dedicated
// servers are not asked about: what Robot knows of their power is not in its list.
func (i *Instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	if _, err := kube.ParseDedicatedID(node.Spec.ProviderID); err == nil {
		return false, nil
	}
	found, err := i.lookup(ctx, node, time.Now().Add(-notReadyMaxAge))
	if errors.Is(err, kube.ErrOtherProvider) {
		return false, nil
	}
	return found != nil && found.Off, err
}

// addresses lists what the Node is reached by. The host name is the Node's own,
// so that renaming a server changes nothing.
//
// Cloud-provider keeps, of each type, only what the kubelet was given (--node-ip).
// So an IPv6 address that was given beside the private one is internal as well,
// whatever the family: as an external one it would cost the Node its public IPv4
// address. Where the private one was not given it is external, or the private one
// would be lost.
func (i *Instances) addresses(node *corev1.Node, s Machine) []corev1.NodeAddress {
	provided := kube.ProvidedIPs(node)
	own, given := ownIPv6(s.PublicIPv6, provided)
	known := reachable{internal: given && (!s.PrivateIP.IsValid() || slices.Contains(provided, s.PrivateIP))}
	if i.Family != IPv6 {
		known.ipv4 = s.PublicIPv4
	}
	if given || i.Family != IPv4 {
		known.ipv6 = own
	}
	if s.PrivateIP.IsValid() {
		known.private = []netip.Addr{s.PrivateIP}
	}
	return known.addresses(node.Name)
}

// reachable is what a host is reached by; zero addresses are left out.
type reachable struct {
	ipv4, ipv6 netip.Addr // public
	private    []netip.Addr
	internal   bool // the IPv6 address is the Node's internal one
}

func (r reachable) addresses(name string) []corev1.NodeAddress {
	out := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	add := func(kind corev1.NodeAddressType, a netip.Addr) {
		if a.IsValid() {
			out = append(out, corev1.NodeAddress{Type: kind, Address: a.String()})
		}
	}
	add(corev1.NodeExternalIP, r.ipv4)
	if !r.internal {
		add(corev1.NodeExternalIP, r.ipv6)
	}
	for _, a := range r.private {
		add(corev1.NodeInternalIP, a)
	}
	if r.internal {
		add(corev1.NodeInternalIP, r.ipv6)
	}
	return out
}

// ownIPv6 is the address of a server's prefix that its kubelet was given, or else
// the first, which the provider takes for the server's own. Without a prefix it is
// the zero Addr.
func ownIPv6(prefix netip.Prefix, provided []netip.Addr) (own netip.Addr, given bool) {
	if !prefix.IsValid() {
		return own, false
	}
	prefix = prefix.Masked()
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
