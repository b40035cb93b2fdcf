package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/routes"
)

// check is a row of the table of checks. docs/reference/doctor.md documents it under its name;
// findings about unread parts refer to that.
type check struct {
	name string
	// severity applies to findings without a severity.
	severity Severity
	// when reports whether the check applies to the cluster by its configuration; nil means
	// always.
	when func(*cluster) bool
	// needs are the parts, read or derived, that the check requires.
	needs survey.Parts
	// remedy applies to findings without a remedy.
	remedy string
	// find runs the check. It returns unseen for anything that it can't check despite its needs.
	find func(x *cluster) []Finding
}

func newCheck(
	name string, severity Severity, when func(*cluster) bool, needs survey.Parts,
	remedy string, find func(*cluster) []Finding,
) check {
	return check{name, severity, when, needs, remedy, find}
}

// checks returns the table, in the order of the reference.
func checks() []check {
	return slices.Concat(
		managerChecks(), kubeProxyChecks(), conflictChecks(), poolChecks(), ledgerChecks(),
		nodeChecks(), podCIDRChecks(), routeChecks(), vSwitchChecks(), serviceChecks(),
		addressChecks(), holderChecks(),
	)
}

func (c check) run(x *cluster) []Finding {
	if reason, blind := x.blind(c.first()); blind {
		return c.complete(x, unseen(reason))
	}
	if c.when != nil && !c.when(x) {
		return nil
	}
	if reason, blind := x.blind(c.needs); blind {
		return c.complete(x, unseen(reason))
	}
	return c.complete(x, c.find(x))
}

func (c check) first() survey.Parts {
	if c.when == nil {
		return 0
	}
	return survey.PartConfig
}

// complete adds the check's name, and its defaults to findings without severity or remedy.
func (c check) complete(x *cluster, found []Finding) []Finding {
	for i := range found {
		f := &found[i]
		f.Check, f.Severity = c.name, cmp.Or(f.Severity, c.severity)
		if f.Severity == Info {
			f.Remedy = cmp.Or(f.Remedy,
				"give underlayctl the access that it needs, or check by hand: docs/reference/doctor.md#"+c.name)
		}
		f.Remedy = placed(cmp.Or(f.Remedy, c.remedy), x.Namespace)
	}
	return found
}

func unseen(reason string) []Finding {
	return []Finding{{Severity: Info, What: notChecked + reason}}
}

// placed replaces the placeholder for the namespace of Underlay's programs in a remedy.
func placed(remedy, namespace string) string { return strings.ReplaceAll(remedy, here, namespace) }

// blind reports whether parts were not read or could not be derived, with the reason.
func (x *cluster) blind(needs survey.Parts) (reason string, blind bool) {
	derived := needs & (book | routing | proxy)
	parts := needs &^ derived
	if x.Saw(parts) {
		errs := map[survey.Part]error{book: x.bookErr, routing: x.routingErr, proxy: x.proxyErr}
		if err := errs[derived]; err != nil {
			return err.Error(), true
		}
		return "", false
	}
	for _, gap := range x.Gaps {
		if gap.Part&parts != 0 {
			return gap.Reason, true
		}
	}
	missing := parts &^ x.Parts
	return "the " + (missing & -missing).String() + " could not be seen", true
}

// Parts of the Snapshot that several checks require together.
const (
	seesBook      = survey.PartConfig | survey.PartNodes | survey.PartLedger
	seesRouting   = seesBook | survey.PartRouteRecord | survey.PartNetwork | survey.PartServers
	seesBalancing = survey.PartConfig | survey.PartNodes | survey.PartServices |
		survey.PartEndpointSlices | survey.PartLoadBalancers

	// Derived parts, which not every cluster allows to derive.
	book survey.Part = (survey.Everything + 1) << iota
	routing
	proxy

	hasBook    = seesBook | book
	hasRouting = seesRouting | routing
	hasProxy   = survey.PartSetup | proxy
)

// cluster is a Snapshot with the values that several checks derive from it. A field is zero if
// its parts were not read; checks that use it list the parts as their needs.
type cluster struct {
	*survey.Snapshot

	book       survey.Book
	bookErr    error
	routing    routes.Decision
	routingErr error
	// absent are the Nodes whose servers don't exist, by name; nil if that can't be determined.
	absent     map[string]survey.Absence
	balancings []survey.Balancing
	// lasting has only reports that have not changed for a minute.
	addressing, lasting survey.Addressing
	holdings            []survey.AddressHolding
	proxy               kube.ProxyConfig
	proxyErr            error
}

func newCluster(s *survey.Snapshot) *cluster {
	x := &cluster{Snapshot: s}
	if s.Saw(seesBook) && x.allocates() {
		if x.book, x.bookErr = s.Book(); x.bookErr != nil {
			x.bookErr = fmt.Errorf("the pools are impossible together: %w", x.bookErr)
		}
	}
	if s.Saw(seesRouting) && x.inNetwork() {
		x.routing, x.routingErr = s.Routing()
	}
	if s.Saw(survey.PartNodes|survey.PartServers) && x.onCloud() {
		x.absent, _ = s.Absences() // the checks that match servers report the error
	}
	if s.Saw(seesBalancing) && x.balances() {
		x.balancings = s.Balancings()
	}
	if s.Saw(survey.PartConfig | survey.PartAddresses) {
		x.addressing = s.Addressing()
		x.lasting = x.addressing.Lasting(s.Taken)
		x.holdings = s.AddressHoldings(x.addressing)
	}
	if s.Saw(survey.PartSetup) {
		x.proxy, x.proxyErr = kube.ReadProxy(s.KubeProxy)
	}
	return x
}

// onCloud reports whether the cluster uses the cloud. With the provider metal, no check of the
// cloud applies.
func (x *cluster) onCloud() bool { return x.Config.Provider != config.Metal }

// inNetwork reports whether the servers should be in a private network.
func (x *cluster) inNetwork() bool { return x.onCloud() && x.Config.Network != "" }

// routed reports whether the CCM writes routes into the network.
func (x *cluster) routed() bool { return x.inNetwork() && x.Config.Routes.Enabled }

func (x *cluster) allocates() bool { return x.Config.IPAM.Enabled }

// balances reports whether the CCM manages load balancers.
func (x *cluster) balances() bool { return x.onCloud() && x.Config.LoadBalancers.Enabled }

// age returns the time since t when the Snapshot was taken.
func (x *cluster) age(t time.Time) time.Duration { return x.Taken.Sub(t) }

// waiting returns the age of a Node, and reports whether it exceeds GracePeriod and the Node is
// not being deleted.
func (x *cluster) waiting(n *corev1.Node) (lasts time.Duration, tooLong bool) {
	age := x.age(n.CreationTimestamp.Time)
	return age, age > survey.GracePeriod && n.DeletionTimestamp.IsZero()
}

func nodeObject(n *corev1.Node) string { return "Node/" + n.Name }

func serviceObject(s *corev1.Service) string { return "Service/" + s.Namespace + "/" + s.Name }
