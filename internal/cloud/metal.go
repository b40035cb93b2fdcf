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

// metalScheme is the scheme of the provider IDs of machines without an API.
const metalScheme = "underlay://"

// errNoAddress means that neither the inventory nor the kubelet has an address of the machine.
var errNoAddress = errors.New("no address of the machine is known")

// Metal implements cloudprovider.InstancesV2 for machines without an API. It describes every
// Node, regardless of its provider ID, and never declares one absent or shut down. It doesn't
// wait for the network: here a Node becomes ready only after its agent has set up the network.
type Metal struct {
	machines map[string]Machine
}

var _ cloudprovider.InstancesV2 = (*Metal)(nil)

// NewMetal returns a Metal for the machines of the inventory, which have unique names.
func NewMetal(inventory []Machine) *Metal {
	m := &Metal{machines: make(map[string]Machine, len(inventory))}
	for _, machine := range inventory {
		m.machines[machine.Name] = machine
	}
	return m
}

// InstanceExists returns true: the absence of a machine can't be observed, and false would
// delete its Node.
func (m *Metal) InstanceExists(context.Context, *corev1.Node) (bool, error) { return true, nil }

// InstanceShutdown returns false: the power state of a machine can't be observed.
func (m *Metal) InstanceShutdown(context.Context, *corev1.Node) (bool, error) { return false, nil }

// InstanceMetadata describes the Node by the inventory or, without an entry, by the Node itself.
func (m *Metal) InstanceMetadata(
	_ context.Context, node *corev1.Node,
) (*cloudprovider.InstanceMetadata, error) {
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
		metadata.NodeAddresses = append(metadata.NodeAddresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: a.String(),
		})
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

func machineName(node *corev1.Node) string {
	if name, ours := strings.CutPrefix(node.Spec.ProviderID, metalScheme); ours {
		return name
	}
	return node.Name
}

// metalAddresses returns the Node's internal addresses: the machine's or, without them, the
// kubelet's --node-ip and the addresses that it reported.
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
			return nil,
				fmt.Errorf("%w: %s is not among %v of the inventory; correct one of the two", errOtherAddress,
					a, m.Addresses)
		}
	}
	return m.Addresses, nil
}
