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
	"github.com/underlay-ccm/underlay/lb"
)

// Snapshot is all that one look showed. Nothing in it is derived; whoever needs
// conclusions asks its methods. What was not asked for, or could not be read,
// is empty: Saw tells emptiness from ignorance.
type Snapshot struct {
	// Taken is when the look began. Ages are counted from it.
	Taken time.Time
	// Parts are those that were seen completely.
	Parts Parts
	// Gaps are those that were asked for and not seen, in the order of Parts.
	Gaps []Gap

	// Namespace is where the CCM and the agents are looked for.
	Namespace string

	// Config is the configuration of the cloud controller manager, as far as it
	// is known: PartConfig. Its Token is never the real one.
	Config config.Config
	// ConfigFrom says for people where the configuration was read: the file, or
	// the ConfigMap, and where the flags come from.
	ConfigFrom string
	// ConfigWarnings are what the CCM would say at its start. ConfigErrors are
	// what it would end with; then Config is the zero Config and PartConfig is
	// not among Parts.
	ConfigWarnings []config.Warning
	ConfigErrors   config.Errors

	// Nodes are all, by name: PartNodes.
	Nodes []*corev1.Node
	// Left are the Nodes that an earlier look had, by UID, with the look that missed
	// them first. A Watcher remembers them for GracePeriod; nothing else has any.
	Left map[types.UID]time.Time
	// Ledger is the ConfigMap kube-system/underlay-node-ipam, nil if there is
	// none, and Shards are those that it lists and that exist, by number:
	// PartLedger. Holdings reads them.
	Ledger *corev1.ConfigMap
	Shards map[int]*corev1.ConfigMap
	// RouteRecord is the ConfigMap kube-system/underlay-routes, nil if there is
	// none: PartRouteRecord.
	RouteRecord *corev1.ConfigMap
	// AddressLedger is the ConfigMap kube-system/underlay-addresses, nil if there is
	// none: PartAddresses. Addressing reads it.
	AddressLedger *corev1.ConfigMap
	// ServiceCIDRs are the API server's Service ranges: PartServiceCIDRs. Empty
	// also where the API server is too old to tell.
	ServiceCIDRs []netip.Prefix
	// Services are all, by namespace and name: PartServices.
	Services []*corev1.Service
	// EndpointSlices are all: PartEndpointSlices.
	EndpointSlices []*discoveryv1.EndpointSlice
	// Events are those of every namespace, oldest first: PartEvents.
	Events []*corev1.Event

	// Deployments, DaemonSets and Pods are those of Namespace, by name, and then
	// those of kube-system: PartWorkloads. Static pods (kube-controller-manager)
	// are among the Pods.
	Deployments []*appsv1.Deployment
	DaemonSets  []*appsv1.DaemonSet
	Pods        []*corev1.Pod
	// ConfigMaps are those of kube-system that tell of the cluster's set-up, by
	// name: kube-proxy and kubeadm-config, those that exist. PartSetup.
	ConfigMaps map[string]*corev1.ConfigMap
	// Lease is the CCM's, nil if there is none: PartSetup. LeaseName is where its
	// flags say that it is: by default kube-system/cloud-controller-manager.
	Lease     *coordinationv1.Lease
	LeaseName types.NamespacedName
	// Policies and PolicyBindings are the validating admission policies named
	// underlay-…, by name: PartSetup.
	Policies       []*admissionv1.ValidatingAdmissionPolicy
	PolicyBindings []*admissionv1.ValidatingAdmissionPolicyBinding

	// Servers are all of the project, by ID: PartServers. Their private
	// addresses are those in Network.
	Servers []cloud.Server
	// Network is the configured one: PartNetwork. Nil if none is configured; one
	// that is configured and doesn't exist is a Gap.
	Network *hetzner.NetworkDetails
	// LoadBalancers are all of the project, whoever's, by ID: PartLoadBalancers.
	LoadBalancers []lb.State
	// Certificates are all of the project: PartLoadBalancers.
	Certificates []lb.Certificate
	// Actions are the newest changes of Want.Node's server or Want.Service's load
	// balancer that the cloud remembers, oldest first, and OlderActions how many
	// more there are: PartActions.
	Actions      []hetzner.Action
	OlderActions int
}

// Part is something that can be looked at, or that can't be seen.
type Part uint

// The parts of a Snapshot. Parts is a set of them.
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
	PartServers
	PartNetwork
	PartLoadBalancers
	PartActions
)

// Parts is a set of Part, joined by |.
type Parts = Part

// Cloud are the parts that need the cloud's token.
const Cloud = PartServers | PartNetwork | PartLoadBalancers | PartActions

// Everything is what doctor looks at: all but the actions of single resources.
const Everything = PartActions - 1

// String names the parts for people.
func (p Part) String() string {
	names := map[Part]string{
		PartConfig: "configuration", PartNodes: "Nodes", PartLedger: "ledger of podCIDRs", PartRouteRecord: "record of routes", PartAddresses: "ledger of addresses", PartServiceCIDRs: "ServiceCIDRs",
		PartServices: "Services", PartEndpointSlices: "EndpointSlices", PartEvents: "Events", PartWorkloads: "workloads",
		PartSetup: "set-up of the cluster", PartServers: "servers", PartNetwork: "network and its routes",
		PartLoadBalancers: "load balancers", PartActions: "actions of the cloud",
	}
	var texts []string
	for one := PartConfig; one <= PartActions; one <<= 1 {
		if p&one != 0 {
			texts = append(texts, names[one])
		}
	}
	return strings.Join(texts, ", ")
}

// Gap is a part that was asked for and not seen.
type Gap struct {
	Part Part
	// Reason is one line for people with the remedy: which verb on which
	// resource is missing, that there is no token, …
	Reason string
	Err    error // the cause, nil if nothing failed, as without a token
}

// Saw reports whether all of the parts were seen completely.
func (s *Snapshot) Saw(parts Parts) bool { return s.Parts&parts == parts }

// NotSeen says for people, in one line for each reason, what stayed unseen. That
// there is no cloud keeps nobody from seeing it.
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

// Require is an error that names what of the parts was not seen and why, nil if
// all were. One reason is enough: the others mostly follow from it.
func (s *Snapshot) Require(parts Parts) error {
	for _, g := range s.Gaps {
		if g.Part&parts != 0 {
			return fmt.Errorf("%s can't be seen: %s", g.Part, g.Reason)
		}
	}
	if !s.Saw(parts) {
		return fmt.Errorf("nobody looked at: %s", parts&^s.Parts)
	}
	return nil
}
