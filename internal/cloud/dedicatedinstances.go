package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// dedicatedMaxAge is the maximum age of the list of dedicated servers for checks of NotReady
// Nodes: 30 of the 200 lists an hour that Robot allows.
const dedicatedMaxAge = 2 * time.Minute

// dedicatedExists is InstanceExists for dedicated servers. It returns false only if the
// account's list has contained the server, now lacks it and contains another Node's, and Robot
// replies to a request for this server that it doesn't exist. Otherwise the server or the list
// may be another account's. A server in the inventory is never declared absent.
//
// Robot's errors are not returned: they are reported once, elsewhere, and upstream would log an
// error for each Node every few seconds, with the same effect.
func (i *Instances) dedicatedExists(
	ctx context.Context, node *corev1.Node, number int64,
) (bool, error) {
	if i.Machines.Robot == nil {
		return true, nil
	}
	dx, err := i.Machines.dedicatedSince(ctx, judgedSince(node, dedicatedMaxAge))
	if err != nil || dx.byID[number] != nil {
		return true, nil
	}
	nodes, err := i.Nodes.List(labels.Everything())
	if err != nil {
		return true, fmt.Errorf("listing Nodes: %w", err)
	}
	err = dx.doubtAccount(nodes)
	if err == nil && !i.Machines.listedOnce(number) {
		err = errors.New("the account's list has not shown it since underlay-ccm began; " +
			"check that the Robot user belongs to the server's account, and delete the Node by hand if its server really is gone")
	}
	if err != nil {
		err = fmt.Errorf("dedicated server %d is not declared absent: %w", number, err)
		i.Recorder.Event(node, corev1.EventTypeWarning, "ServerAbsenceUnproved", err.Error())
		return true, fmt.Errorf("node %s: %w", node.Name, err)
	}
	if _, err := i.Machines.Robot.Get(ctx, number); errors.Is(err, ErrNoServer) {
		return false, nil
	}
	return true, nil
}

// dedicatedAddresses returns the addresses of a dedicated server's Node. No API has private
// addresses, so they are taken from the kubelet's --node-ip, and refused if they may be another
// machine's.
func (i *Instances) dedicatedAddresses(
	ctx context.Context, node *corev1.Node, d *Machine,
) ([]corev1.NodeAddress, error) {
	dx, err := i.Machines.dedicatedSince(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	if wrong := dx.wrong[d.ID]; len(wrong) > 0 {
		i.Recorder.Eventf(node, corev1.EventTypeWarning, "InventoryMismatch",
			"the inventory contradicts Robot about dedicated server %d, and Robot counts: %s; "+
				"correct inventory, or the server's name at Robot", d.ID, strings.Join(wrong, ", "))
	}
	provided := kube.ProvidedIPs(node)
	own6, given6 := ownIPv6(d.PublicIPv6, provided)
	known := reachable{internal: given6}
	if given6 || i.Family != IPv4 {
		known.ipv6 = own6
	}
	if i.Family != IPv6 {
		known.ipv4 = d.PublicIPv4
	}
	var listed []netip.Addr // private addresses of the inventory
	for _, a := range d.Addresses {
		switch {
		case i.private(a):
			listed = append(listed, a)
		case a.Is4() && !known.ipv4.IsValid() && i.Family != IPv6:
			known.ipv4 = a
		case a.Is6() && !known.ipv6.IsValid() && i.Family != IPv4:
			known.ipv6 = a
		}
	}
	for _, a := range provided {
		switch {
		case i.private(a):
			if len(listed) > 0 && !slices.Contains(listed, a) {
				return nil,
					fmt.Errorf("%w: %s is not among %v of the inventory; correct one of the two", errOtherAddress,
						a, listed)
			}
			known.private = append(known.private, a)
		case !d.has(a):
			return nil,
				fmt.Errorf("%w: %s is no address of dedicated server %d; start the kubelet with one that is",
					errOtherAddress, a, d.ID)
		case a.Is4():
			known.ipv4 = a
		default:
			known.ipv6 = a
		}
	}
	if len(provided) == 0 {
		known.private = listed
	}
	if i.Tunnels && len(known.private) == 0 && slices.Contains(provided, known.ipv4) {
		known.private = []netip.Addr{known.ipv4}
		return known.addresses(node.Name), nil
	}
	for _, a := range known.private {
		if err := i.mayHave(ctx, node, d, dx, a); err != nil {
			return nil, err
		}
	}
	return known.addresses(node.Name), nil
}

// private reports whether an address is private or in the network's range.
func (i *Instances) private(a netip.Addr) bool {
	return a.IsPrivate() || i.NetworkRange != nil && i.NetworkRange().Contains(a)
}

func (i *Instances) mayHave(
	ctx context.Context, node *corev1.Node, d *Machine, dx *index, a netip.Addr,
) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s %w", errOtherAddress, a, fmt.Errorf(format, args...))
	}
	switch {
	case i.NetworkRange != nil && !i.NetworkRange().Contains(a):
		return wrong("lies outside the network's range %s; start the kubelet with the address that the server has in the network", i.NetworkRange())
	case i.NetworkRange == nil && !i.ForwardPrivate:
		return wrong("is private and robot.forwardInternalIPs is false; start the kubelet with a public address, or set that to true")
	}
	servers, err := i.Machines.Cloud.List(ctx, time.Time{})
	if err != nil {
		return err
	}
	if owner := i.Machines.of(servers).owners[a]; owner != "" {
		return wrong("is the address of cloud server %s; give the dedicated server another one", owner)
	}
	if owner := dx.owner(a); owner != nil && owner.ID != d.ID {
		return wrong("is an address of dedicated server %d; give this one another", owner.ID)
	}
	nodes, err := i.Nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	for _, other := range nodes {
		if other.Name != node.Name && precedes(other, node) &&
			slices.Contains(other.Status.Addresses, corev1.NodeAddress{
				Type: corev1.NodeInternalIP, Address: a.String(),
			}) {
			return wrong("is the address of Node %s; give this server another one", other.Name)
		}
	}
	return nil
}

// precedes reports whether a Node has precedence for an address that both claim: an initialized
// Node over an uninitialized or younger one.
func precedes(one, other *corev1.Node) bool {
	if kube.Tainted(one, cloudproviderapi.TaintExternalCloudProvider) {
		return false
	}
	return kube.Tainted(other, cloudproviderapi.TaintExternalCloudProvider) ||
		one.CreationTimestamp.Before(&other.CreationTimestamp)
}
