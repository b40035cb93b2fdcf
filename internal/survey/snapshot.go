package survey

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/policy"
)

// Snapshot is the collected state; its methods derive values. A part that was not requested or
// could not be read is empty: Saw distinguishes it from a part without objects.
type Snapshot struct {
	// Taken is when collecting began. Ages are relative to it.
	Taken time.Time
	// Parts are the parts that were read completely.
	Parts Parts
	// Gaps are the parts that were requested and not read, in the order of Parts.
	Gaps []Gap

	Namespace string

	// Config is the CCM's configuration: PartConfig. Its Token is never the real one.
	Config config.Config
	// ConfigFrom describes the sources of the file and the flags.
	ConfigFrom string
	// ConfigWarnings and ConfigErrors are those of the CCM's startup. With errors, Config is the
	// zero Config and Parts lacks PartConfig.
	ConfigWarnings []config.Warning
	ConfigErrors   config.Errors

	// Nodes are all, by name: PartNodes.
	Nodes []*corev1.Node
	// Ledger has the ConfigMaps of the stored ledger: PartLedger. Holdings parses them.
	Ledger ipamcontroller.Stored
	// RouteRecord is the ConfigMap kube-system/underlay-routes or nil: PartRouteRecord.
	RouteRecord *corev1.ConfigMap
	// AddressLedger is the ConfigMap kube-system/underlay-addresses or nil: PartAddresses.
	AddressLedger *corev1.ConfigMap
	// ServiceCIDRs are empty if the API server doesn't serve them: PartServiceCIDRs.
	ServiceCIDRs []netip.Prefix
	// Services are all, by namespace and name: PartServices.
	Services []*corev1.Service
	// EndpointSlices are of all namespaces: PartEndpointSlices.
	EndpointSlices []*discoveryv1.EndpointSlice
	// Events are of all namespaces, oldest first: PartEvents.
	Events []*corev1.Event

	// Workloads of Namespace, then of kube-system, by name: PartWorkloads. Pods includes static
	// pods.
	Deployments []*appsv1.Deployment
	DaemonSets  []*appsv1.DaemonSet
	Pods        []*corev1.Pod
	// KubeProxy is the ConfigMap of its configuration or nil: PartSetup.
	KubeProxy *corev1.ConfigMap
	// Lease is the CCM's leader election Lease or nil, LeaseName its name by the CCM's flags:
	// PartSetup.
	Lease     *coordinationv1.Lease
	LeaseName types.NamespacedName
	// Policies and PolicyBindings have names that begin with underlay-: PartSetup.
	Policies       []*admissionv1.ValidatingAdmissionPolicy
	PolicyBindings []*admissionv1.ValidatingAdmissionPolicyBinding

	// NetworkPolicies has everything that they depend on; nil without any: PartNetworkPolicies.
	NetworkPolicies *policy.Index

	// Servers are all of the project, with their addresses in Network, by ID: PartServers.
	Servers []cloud.Machine
	// Network is nil if none is configured: PartNetwork. A network that doesn't exist is a Gap.
	Network *hetzner.NetworkDetails
	// LoadBalancers are all of the project, by ID: PartLoadBalancers.
	LoadBalancers []lb.State
	// Certificates are all of the project: PartLoadBalancers.
	Certificates []lb.Certificate
}

// Part is a part of a Snapshot.
type Part uint

const (
	PartConfig Part = 1 << iota
	PartNodes
	PartLedger
	PartRouteRecord
	PartAddresses
	PartServiceCIDRs
	PartServices
	PartEndpointSlices
	PartEvents
	PartWorkloads
	PartSetup
	PartNetworkPolicies
	PartServers
	PartNetwork
	PartLoadBalancers
)

// Parts is a set of Part values, joined by |.
type Parts = Part

// Cloud is the set of parts that need the cloud's token.
const Cloud = PartServers | PartNetwork | PartLoadBalancers

// Everything is the set of all parts.
const Everything = PartLoadBalancers<<1 - 1

// String returns the human-readable names of the parts.
func (p Part) String() string {
	names := map[Part]string{
		PartConfig: "configuration", PartNodes: "Nodes", PartLedger: "ledger of podCIDRs",
		PartRouteRecord: "record of routes", PartAddresses: "ledger of addresses",
		PartServiceCIDRs: "ServiceCIDRs", PartServices: "Services",
		PartEndpointSlices: "EndpointSlices", PartEvents: "Events", PartWorkloads: "workloads",
		PartSetup: "set-up of the cluster", PartNetworkPolicies: "NetworkPolicies",
		PartServers: "servers", PartNetwork: "network and its routes",
		PartLoadBalancers: "load balancers",
	}
	var texts []string
	for one := PartConfig; one <= PartLoadBalancers; one <<= 1 {
		if p&one != 0 {
			texts = append(texts, names[one])
		}
	}
	return strings.Join(texts, ", ")
}

// Gap is a requested part that was not read.
type Gap struct {
	Part Part
	// Reason is one human-readable line with the remedy, such as the missing verb and resource.
	Reason string
	Err    error // the cause, nil if no request failed, as without a token
}

// Saw reports whether all of the parts were read completely.
func (s *Snapshot) Saw(parts Parts) bool { return s.Parts&parts == parts }

// NotSeen returns a line for each reason, with the parts that could not be read for it. It omits
// parts that are missing because there is no cloud.
func (s *Snapshot) NotSeen() []string {
	var reasons []string
	parts := map[string]Parts{}
	for _, g := range s.Gaps {
		if g.Reason == noCloud {
			continue
		}
		if !slices.Contains(reasons, g.Reason) {
			reasons = append(reasons, g.Reason)
		}
		parts[g.Reason] |= g.Part
	}
	out := make([]string, len(reasons))
	for i, reason := range reasons {
		out[i] = parts[reason].String() + ": " + reason
	}
	return out
}

// Require returns an error with the reason for the first of the parts that was not read. The
// other reasons mostly follow from it.
func (s *Snapshot) Require(parts Parts) error {
	for _, g := range s.Gaps {
		if g.Part&parts != 0 {
			return fmt.Errorf("%s can't be seen: %s", g.Part, g.Reason)
		}
	}
	if !s.Saw(parts) {
		return fmt.Errorf("not checked: %s", parts&^s.Parts)
	}
	return nil
}
