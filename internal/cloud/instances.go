package cloud

import (
	"cmp"
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

// AddressFamily selects the public addresses of Nodes.
type AddressFamily string

const (
	IPv4      AddressFamily = "ipv4"
	IPv6      AddressFamily = "ipv6"
	DualStack AddressFamily = "dualstack"
)

// Instances implements cloudprovider.InstancesV2 for upstream's node controllers.
type Instances struct {
	Machines *Machines
	Nodes    corelisters.NodeLister
	Recorder record.EventRecorder
	// Family selects the external addresses.
	Family AddressFamily
	// InNetwork delays a Node's metadata until its server is attached to the network.
	InNetwork bool
	// Tunnels accepts servers outside the network whose kubelets have their public address.
	Tunnels bool
	// Gated delays a Node's metadata until its NetworkUnavailable condition keeps pods away, or
	// is False. It must be set if and only if a controller sets that condition.
	Gated bool
	// NetworkRange returns the network's range if InNetwork is set. Private addresses of
	// dedicated servers are accepted from kubelets if they are in it.
	NetworkRange func() netip.Prefix
	// ForwardPrivate accepts all of them without a network.
	ForwardPrivate bool
}

var _ cloudprovider.InstancesV2 = (*Instances)(nil)

// errNotYet makes upstream retry.
var errNotYet = errors.New("not yet")

// notReadyMaxAge is the maximum age of the server list for checks of NotReady Nodes, which
// upstream repeats every few seconds: 60 lists an hour. For a Node that has just become
// NotReady, the list must be from after that.
const notReadyMaxAge = 60 * time.Second

// InstanceMetadata implements cloudprovider.InstancesV2.
func (i *Instances) InstanceMetadata(
	ctx context.Context, node *corev1.Node,
) (*cloudprovider.InstanceMetadata, error) {
	if i.Gated {
		if reason := gate(node); reason != "" {
			return notYet(node, reason)
		}
	}
	found, err := i.find(ctx, node)
	if err != nil {
		return nil, err
	}
	addresses, err := i.addresses(ctx, node, found)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	metadata := &cloudprovider.InstanceMetadata{
		ProviderID:       cmp.Or(node.Spec.ProviderID, found.ProviderID()), // also in the older form
		InstanceType:     found.Type,
		NodeAddresses:    addresses,
		Zone:             found.Zone,
		Region:           found.Region,
		AdditionalLabels: map[string]string{"instance.hetzner.cloud/provided-by": "robot"},
	}
	if !found.Dedicated {
		metadata.Zone = zone(found.Region)
		metadata.AdditionalLabels["instance.hetzner.cloud/provided-by"] = "cloud"
	}
	return metadata, nil
}

// gate returns why only the taint of an uninitialized Node keeps pods away from it, or "" if its
// routes exist or another taint does. The scheduler evaluates taints, not conditions, and
// kube-controller-manager adds the taint shortly after the condition.
func gate(node *corev1.Node) string {
	c := kube.Condition(node, corev1.NodeNetworkUnavailable)
	switch {
	case c == nil:
		return "its NetworkUnavailable condition is not set"
	case c.Status == corev1.ConditionFalse ||
		!kube.Tainted(node, cloudproviderapi.TaintExternalCloudProvider):
		return ""
	case !kube.Tainted(node, corev1.TaintNodeNetworkUnavailable):
		return "its NetworkUnavailable condition has not become a taint"
	default:
		return ""
	}
}

// notYet makes upstream wait. On a nil result, upstream skips an uninitialized Node until the
// Node changes, as it does by the condition and its taint. For an initialized Node, upstream
// doesn't check the result for nil.
func notYet(node *corev1.Node, reason string) (*cloudprovider.InstanceMetadata, error) {
	if kube.Tainted(node, cloudproviderapi.TaintExternalCloudProvider) {
		return nil, nil
	}
	return nil, fmt.Errorf("node %s: %s: %w", node.Name, reason, errNotYet)
}

// find returns the machine of a Node, and errNotYet while a cloud server is not attached.
func (i *Instances) find(ctx context.Context, node *corev1.Node) (*Machine, error) {
	found, err := i.lookup(ctx, node, time.Time{})
	detached := func() bool {
		return found != nil && !found.Dedicated && i.InNetwork && !found.PrivateIP.IsValid() &&
			!i.outside(node, *found)
	}
	if detached() || errors.Is(err, ErrNoMatch) {
		// The API server's clock may be behind, and the list too old.
		found, err = i.lookup(ctx, node, time.Now().Add(-freshEnough))
	}
	if detached() {
		err = fmt.Errorf("node %s: server %s is not attached to the network: %w", node.Name,
			found.ProviderID(), errNotYet)
	}
	switch {
	case errors.Is(err, ErrAmbiguous):
		i.Recorder.Event(node, corev1.EventTypeWarning, "ServerAmbiguous", err.Error())
	case errors.Is(err, ErrNoMatch):
		err = errors.Join(err, i.reportMissing(ctx, node))
	}
	return found, err
}

// reportMissing sends an Event for a Ready Node with a provider ID that no server has. This happens
// if a server is replaced under the Node's name while the Node is not checked: the new kubelet
// uses the existing Node, and routes and targets keep pointing to the old server. A provider ID is
// immutable, so an operator has to delete the Node. find has just read the list.
func (i *Instances) reportMissing(ctx context.Context, node *corev1.Node) error {
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	ready := kube.Condition(node, corev1.NodeReady)
	if err != nil || ready == nil || ready.Status != corev1.ConditionTrue {
		return nil
	}
	nodes, err := i.Nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	servers, err := i.Machines.Cloud.List(ctx, time.Now().Add(-freshEnough))
	if err != nil {
		return err
	}
	ix := i.Machines.of(servers)
	if ix.byID[id] != nil || ix.doubt(nodes) != nil {
		return nil
	}
	successor := ""
	if named := ix.byName[node.Name]; len(named) > 0 {
		successor = fmt.Sprintf(", and %d has the Node's name", named[0].ID)
	}
	i.Recorder.Eventf(node, corev1.EventTypeWarning, "ServerMissing",
		"the project has no server with the ID %d of the Node's provider ID%s; routes and load "+
			"balancers go on leading to the server that is gone: delete the Node and restart its "+
			"kubelet, so that it joins anew", id, successor)
	return nil
}

// outside reports whether the server is outside the network on purpose.
func (i *Instances) outside(node *corev1.Node, s Machine) bool {
	return i.Tunnels && !s.PrivateIP.IsValid() && s.PublicIPv4.IsValid() &&
		slices.Contains(kube.ProvidedIPs(node), s.PublicIPv4)
}

func (i *Instances) lookup(
	ctx context.Context, node *corev1.Node, since time.Time,
) (*Machine, error) {
	found, err := i.Machines.find(ctx, node, since, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	return found, nil
}

// InstanceExists is called for NotReady Nodes, and false deletes the Node. It returns false only
// if a list with another Node's server lacks this Node's, and the provider replies to a request
// for this server that it doesn't exist.
func (i *Instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	if number, err := kube.ParseDedicatedID(node.Spec.ProviderID); err == nil {
		return i.dedicatedExists(ctx, node, number)
	}
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		// A Node without a provider ID, or with another provider's, must not be declared absent.
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

// judgedSince returns how new a list must be for the check of a NotReady Node.
func judgedSince(node *corev1.Node, maxAge time.Duration) time.Time {
	now := time.Now()
	since := now.Add(-maxAge)
	ready := kube.Condition(node, corev1.NodeReady)
	// A time in the future is from a clock that is ahead: no list would ever be as new.
	if ready != nil && ready.LastTransitionTime.After(since) && !ready.LastTransitionTime.After(now) {
		return ready.LastTransitionTime.Time
	}
	return since
}

// InstanceShutdown reports whether the Node's server is powered off, by the list of
// InstanceExists, which upstream calls right before. Robot's list has no power state, so it is
// false for dedicated servers.
func (i *Instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return false, nil
	}
	servers, err := i.Machines.Cloud.List(ctx, time.Now().Add(-notReadyMaxAge))
	if err != nil {
		return false, fmt.Errorf("node %s: %w", node.Name, err)
	}
	found := i.Machines.of(servers).byID[id]
	return found != nil && found.Off, nil
}

// addresses returns the Node's addresses. The host name is the Node's name, so that renaming a
// server changes nothing.
//
// Cloud-provider keeps, of each type, only the addresses that the kubelet was given (--node-ip).
// An IPv6 address that was given beside the private address is therefore internal in every
// family: as an external address, it would cost the Node its public IPv4 address. If the private
// address was not given, the IPv6 address is external, or the private address would be lost.
func (i *Instances) addresses(
	ctx context.Context, node *corev1.Node, m *Machine,
) ([]corev1.NodeAddress, error) {
	if m.Dedicated {
		return i.dedicatedAddresses(ctx, node, m)
	}
	provided := kube.ProvidedIPs(node)
	own, given := ownIPv6(m.PublicIPv6, provided)
	known := reachable{
		internal: given && (!m.PrivateIP.IsValid() || slices.Contains(provided, m.PrivateIP)),
	}
	if i.Family != IPv6 {
		known.ipv4 = m.PublicIPv4
	}
	if given || i.Family != IPv4 {
		known.ipv6 = own
	}
	switch {
	case m.PrivateIP.IsValid():
		known.private = []netip.Addr{m.PrivateIP}
	case i.outside(node, *m):
		known.private = []netip.Addr{m.PublicIPv4}
	}
	for _, a := range provided {
		if a != known.ipv4 && a != known.ipv6 && !slices.Contains(known.private, a) {
			return nil, fmt.Errorf("%w: %s is no address of server %d that its Node may have; "+
				"correct the kubelet's --node-ip", errOtherAddress, a, m.ID)
		}
	}
	return known.addresses(node.Name), nil
}

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

// ownIPv6 returns the address in a server's prefix that its kubelet was given or, without one,
// the first, which the provider uses for the server. Without a prefix it returns the zero Addr.
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

// zone keeps the zone names from when the API had data centers, because volumes and affinities
// of running clusters depend on them. A later location is its own zone.
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
