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

// check is a row of the table. What it looks at is written in docs/reference/doctor.md, in the
// row with its name, which a finding about what could not be seen refers to.
type check struct {
	name string
	// severity is that of a finding without one.
	severity Severity
	// when reports whether the cluster has what is checked at all, by its configuration; nil:
	// every cluster has.
	when func(*cluster) bool
	// needs are what has to be seen, and derived, to make the check.
	needs survey.Parts
	// remedy is what to do in general, of a finding that has none of its own.
	remedy string
	// find looks. What it could not see although the parts are there is among the findings,
	// see unseen.
	find func(x *cluster) []Finding
}

func newCheck(
	name string, severity Severity, when func(*cluster) bool, needs survey.Parts,
	remedy string, find func(*cluster) []Finding,
) check {
	return check{name, severity, when, needs, remedy, find}
}

// checks is the table, in the order of the reference.
func checks() []check {
	return slices.Concat(
		managerChecks(), kubeProxyChecks(), conflictChecks(), agentChecks(),
		poolChecks(), ledgerChecks(), nodeChecks(), podCIDRChecks(), routeChecks(), vSwitchChecks(), serviceChecks(), addressChecks(),
	)
}

// run makes the check if what it needs was seen.
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

// first are the parts by which when decides.
func (c check) first() survey.Parts {
	if c.when == nil {
		return 0
	}
	return survey.PartConfig
}

// complete adds to findings what the check has in general.
func (c check) complete(x *cluster, found []Finding) []Finding {
	for i := range found {
		f := &found[i]
		f.Check, f.Severity = c.name, cmp.Or(f.Severity, c.severity)
		if f.Severity == Info {
			f.Remedy = cmp.Or(f.Remedy, "give underlayctl what it needs to see it, or check by hand: docs/reference/doctor.md#"+c.name)
		}
		f.Remedy = placed(cmp.Or(f.Remedy, c.remedy), x.Namespace)
	}
	return found
}

// unseen is the finding of a check that could not be made.
func unseen(reason string) []Finding {
	return []Finding{{Severity: Info, What: notChecked + reason}}
}

// placed puts the namespace of Underlay's programs into a remedy.
func placed(remedy, namespace string) string { return strings.ReplaceAll(remedy, here, namespace) }

// blind reports whether parts were not seen, or what is derived of them can't be, and why.
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

// Parts of the Snapshot that several checks need together.
const (
	seesBook      = survey.PartConfig | survey.PartNodes | survey.PartLedger
	seesRouting   = seesBook | survey.PartRouteRecord | survey.PartNetwork | survey.PartServers
	seesBalancing = survey.PartConfig | survey.PartNodes | survey.PartServices | survey.PartEndpointSlices | survey.PartLoadBalancers

	// What a check may rest on, and that can't be derived from every cluster.
	book survey.Part = survey.PartActions << (iota + 1)
	routing
	proxy

	hasBook    = seesBook | book
	hasRouting = seesRouting | routing
	hasProxy   = survey.PartSetup | proxy
)

// cluster is a Snapshot with what more than one check concludes from it. A field
// whose parts were not all seen is zero; checks that use it name the parts as
// their needs.
type cluster struct {
	*survey.Snapshot

	book       survey.Book
	bookErr    error
	routing    routes.Decision
	routingErr error
	// absent are the Nodes whose servers don't exist, by name. None where nobody can
	// tell.
	absent map[string]survey.Absence
	// balancings are the Services that Underlay serves.
	balancings []survey.Balancing
	// addressing and addressView are who holds which address; lasting is what nodes have
	// said of it for a minute.
	addressing, lasting survey.Addressing
	addressView         survey.AddressesView
	// proxy is kube-proxy's configuration.
	proxy    kube.ProxyConfig
	proxyErr error
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
		x.absent, _ = s.Absences() // why not is told by those who match servers
	}
	if s.Saw(seesBalancing) && x.balances() {
		x.balancings = s.Balancings()
	}
	if s.Saw(survey.PartConfig | survey.PartAddresses) {
		x.addressing = s.Addressing()
		x.lasting = x.addressing.Lasting(s.Taken)
		x.addressView, _ = survey.AddressesOf(s) // it fails where a part is not seen
	}
	if s.Saw(survey.PartSetup) {
		x.proxy, x.proxyErr = readProxy(s.ConfigMaps)
	}
	return x
}

// onCloud reports whether the machines are the cloud's. On metal nothing of a cloud
// is missing.
func (x *cluster) onCloud() bool { return x.Config.Provider != config.Metal }

// inNetwork reports whether the servers are to be in a private network.
func (x *cluster) inNetwork() bool { return x.onCloud() && x.Config.Network != "" }

// routed reports whether routes are to stand in the network.
func (x *cluster) routed() bool { return x.inNetwork() && x.Config.Routes.Enabled }

// allocates reports whether the cloud controller manager hands out podCIDRs.
func (x *cluster) allocates() bool { return x.Config.IPAM.Enabled }

// balances reports whether it serves Services with load balancers.
func (x *cluster) balances() bool { return x.onCloud() && x.Config.LoadBalancers.Enabled }

// age is how long before the look something was.
func (x *cluster) age(t time.Time) time.Duration { return x.Taken.Sub(t) }

// waiting is how long a Node has existed, and reports whether that is too long to
// be without something.
func (x *cluster) waiting(n *corev1.Node) (lasts time.Duration, tooLong bool) {
	age := x.age(n.CreationTimestamp.Time)
	return age, age > survey.GracePeriod && n.DeletionTimestamp.IsZero()
}

func nodeObject(n *corev1.Node) string { return "Node/" + n.Name }

func serviceObject(s *corev1.Service) string { return "Service/" + s.Namespace + "/" + s.Name }
