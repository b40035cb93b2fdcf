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

// Sources are where a look goes.
type Sources struct {
	// Client is only asked to get and list.
	Client kubernetes.Interface
	// Namespace is where the CCM and the agents are installed; empty: kube-system.
	Namespace string
	// Configuration says where the CCM's settings come from.
	Configuration Configuration
	// Cloud makes a client for an endpoint; it is called once that is known. Nil:
	// there is no token, and NoCloud says why.
	Cloud   func(endpoint string) (*hetzner.Client, error)
	NoCloud string
}

// Want is what to look at.
type Want struct {
	Parts Parts
	// Node and Service, if set, limit Events to those about this one object, and
	// are whose server's or load balancer's Actions are asked for.
	Node    string
	Service types.NamespacedName
}

// NameOf is a Service's.
func NameOf(svc *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
}

// Collect looks once at all that is wanted. What it may not or can't see becomes
// a Gap of the Snapshot; the error is for what makes every further look useless:
// the API server can't be reached, it refuses the credentials, or the context
// ends.
func Collect(ctx context.Context, from Sources, want Want) (*Snapshot, error) {
	s := from.empty()
	return s, s.look(ctx, from, want)
}

// empty is a Snapshot of nothing.
func (from Sources) empty() *Snapshot {
	return &Snapshot{Taken: time.Now(), Namespace: cmp.Or(from.Namespace, system), LeaseName: usualLease()}
}

// look fills the parts that are wanted. Parts and Gaps are complete only without an error.
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
	slices.SortStableFunc(s.Gaps, func(a, b Gap) int { return cmp.Compare(order[a.Part], order[b.Part]) })
	return nil
}

// look fills one part of a Snapshot.
type look struct {
	part Part
	at   func(context.Context) error
}

// looks are all, in their order: some rest on others' findings.
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
		{PartNetwork, c.inCloud(c.network)},
		{PartServers, c.inCloud(c.servers)},
		{PartLoadBalancers, c.inCloud(c.loadBalancers)},
		{PartActions, c.inCloud(c.actions)},
	}
}

// collector fills one Snapshot.
type collector struct {
	Sources
	want  Want
	s     *Snapshot
	cloud *hetzner.Client
}

// errNotSeen says without any request that a part can't be seen; its text is for
// people.
type errNotSeen string

func (e errNotSeen) Error() string { return string(e) }

// useless reports whether no request to the API server can succeed.
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
