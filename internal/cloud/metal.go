package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// metalScheme begins the provider IDs of machines that no cloud knows.
const metalScheme = "underlay://"

// errNoAddress: neither inventory nor kubelet says how the machine is reached.
var errNoAddress = errors.New("no address of the machine is known")

// Metal answers upstream's node controllers for machines that no API knows. It
// has nobody to ask, so it describes every Node, whatever its provider ID, and
// declares none absent or shut down. It doesn't wait for the network either:
// here a Node isn't ready before its agent has set that up.
type Metal struct {
	machines map[string]Machine
}

var _ cloudprovider.InstancesV2 = (*Metal)(nil)

// NewMetal takes the machines that are known beforehand, each under a name of
// its own.
func NewMetal(inventory []Machine) *Metal {
	m := &Metal{machines: make(map[string]Machine, len(inventory))}
	for _, machine := range inventory {
		m.machines[machine.Name] = machine
	}
	return m
}

// InstanceExists is always true: that nobody answers for a machine says nothing
// about it, and a false answer would delete its Node.
func (m *Metal) InstanceExists(context.Context, *corev1.Node) (bool, error) { return true, nil }

// InstanceShutdown is always false, for want of anybody who would know.
func (m *Metal) InstanceShutdown(context.Context, *corev1.Node) (bool, error) { return false, nil }

// InstanceMetadata describes the Node by the inventory, else by itself.
func (m *Metal) InstanceMetadata(_ context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	machine, listed := m.machines[machineName(node)]
	addrs, err := machine.metalAddresses(node)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	metadata := &cloudprovider.InstanceMetadata{
		ProviderID:    node.Spec.ProviderID,
		NodeAddresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: node.Name}},
	}
	if metadata.ProviderID == "" {
		metadata.ProviderID = metalScheme + node.Name
	}
	if listed {
		metadata.InstanceType, metadata.Zone, metadata.Region = machine.Type, machine.Zone, machine.Region
	}
	for _, a := range addrs {
		metadata.NodeAddresses = append(metadata.NodeAddresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	if len(machine.Addresses) == 0 {
		for _, a := range node.Status.Addresses {
			if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeHostName {
				metadata.NodeAddresses = append(metadata.NodeAddresses, a)
			}
		}
	}
	return metadata, nil
}

// machineName is the name under which a Node's machine may be in the inventory.
func machineName(node *corev1.Node) string {
	if name, ours := strings.CutPrefix(node.Spec.ProviderID, metalScheme); ours {
		return name
	}
	return node.Name
}

// metalAddresses are the Node's internal ones: the machine's, else what the kubelet
// was told by --node-ip, and what it reported.
func (m Machine) metalAddresses(node *corev1.Node) ([]netip.Addr, error) {
	provided := kube.ProvidedIPs(node)
	if len(m.Addresses) == 0 {
		all := slices.Clone(provided)
		for _, a := range kube.InternalIPs(node) {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%w: start its kubelet with --node-ip, or list the machine with its addresses in inventory", errNoAddress)
		}
		return all, nil
	}
	for _, a := range provided {
		if !slices.Contains(m.Addresses, a) {
			return nil, fmt.Errorf("%w: %s is not among %v of the inventory; correct one of the two", errOtherAddress, a, m.Addresses)
		}
	}
	return m.Addresses, nil
}
