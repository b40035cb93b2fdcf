package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// Sources are the API server, the configuration and the cloud from which Collect reads.
type Sources struct {
	// Client is used for get and list only.
	Client kubernetes.Interface
	// Namespace is the namespace of the CCM and the agents, kube-system if empty.
	Namespace     string
	Configuration Configuration
	// Cloud returns a client for the configured endpoint. If it is nil, NoCloud is the reason.
	Cloud   func(endpoint string) (*hetzner.Client, error)
	NoCloud string
}

// Want selects the parts to collect.
type Want struct {
	Parts Parts
	// Node and Service, if set, select the object of Events.
	Node    string
	Service types.NamespacedName
}

// NameOf returns the namespace and name of a Service.
func NameOf(svc *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
}

// Collect reads all of the wanted parts. A part that can't be read becomes a Gap of the
// Snapshot. It returns an error if no further request can succeed: the API server is unreachable
// or refuses the credentials, or ctx is done.
func Collect(ctx context.Context, from Sources, want Want) (*Snapshot, error) {
	s := from.empty()
	return s, s.look(ctx, from, want)
}

func (from Sources) empty() *Snapshot {
	return &Snapshot{
		Taken: time.Now(), Namespace: cmp.Or(from.Namespace, system),
		// By the defaults of upstream's flags.
		LeaseName: types.NamespacedName{Namespace: system, Name: "cloud-controller-manager"},
	}
}

// look reads the wanted parts. Parts and Gaps are complete only if it returns no error.
func (s *Snapshot) look(ctx context.Context, from Sources, want Want) error {
	c := &collector{Sources: from, want: want, s: s}
	order := map[Part]int{}
	for i, look := range c.looks() {
		order[look.part] = i
		if want.Parts&look.part == 0 {
			continue
		}
		err := look.at(ctx)
		switch {
		case err == nil:
			s.Parts |= look.part
		case ctx.Err() != nil:
			return fmt.Errorf("looking at %s: %w", look.part, context.Cause(ctx))
		case useless(err):
			return err
		default:
			s.Gaps = append(s.Gaps, gap(look.part, err))
		}
	}
	slices.SortStableFunc(s.Gaps, func(a, b Gap) int {
		return cmp.Compare(order[a.Part], order[b.Part])
	})
	return nil
}

type look struct {
	part Part
	at   func(context.Context) error
}

// looks returns the parts in order of collection: some depend on earlier ones.
func (c *collector) looks() []look {
	return []look{
		{PartConfig, c.config},
		{PartNodes, c.nodes},
		{PartLedger, c.ledger},
		{PartRouteRecord, c.routeRecord},
		{PartAddresses, c.addressLedger},
		{PartServiceCIDRs, c.serviceCIDRs},
		{PartServices, c.services},
		{PartEndpointSlices, c.endpointSlices},
		{PartEvents, c.events},
		{PartWorkloads, c.workloads},
		{PartSetup, c.setup},
		{PartNetworkPolicies, c.networkPolicies},
		{PartNetwork, c.inCloud(c.network)},
		{PartServers, c.inCloud(c.servers)},
		{PartLoadBalancers, c.inCloud(c.loadBalancers)},
	}
}

type collector struct {
	Sources
	want  Want
	s     *Snapshot
	cloud *hetzner.Client
}

// errNotSeen is the reason why a part can't be read, found without a request.
type errNotSeen string

func (e errNotSeen) Error() string { return string(e) }

// useless reports whether err is an error of the API server that applies to all requests.
func useless(err error) bool {
	var kube *kubeError
	if !errors.As(err, &kube) {
		return false
	}
	return !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)
}

func gap(part Part, err error) Gap {
	var why errNotSeen
	if errors.As(err, &why) {
		return Gap{Part: part, Reason: string(why)}
	}
	return Gap{Part: part, Reason: err.Error(), Err: err}
}
