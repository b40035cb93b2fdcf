package doctor

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
)

// Parts of the Snapshot that several checks need together.
const (
	seesBook      = survey.PartConfig | survey.PartNodes | survey.PartLedger
	seesRouting   = seesBook | survey.PartRouteRecord | survey.PartNetwork | survey.PartServers
	seesBalancing = survey.PartConfig | survey.PartNodes | survey.PartServices | survey.PartEndpointSlices | survey.PartLoadBalancers
)

// patience is how long a Node may be without a provider ID, podCIDRs, a route, and
// how long it may outlive its server.
const patience = survey.Patience

// exam is a Snapshot with what more than one check concludes from it. A field
// whose parts were not all seen is zero; checks that use it name the parts as
// their needs.
type exam struct {
	*survey.Snapshot

	book       survey.Book
	bookErr    error
	routing    survey.Routing
	routingErr error
	// absent are the Nodes whose servers don't exist, by name. None where nobody can
	// tell.
	absent map[string]survey.Absence
	// balancings are the Services that Underlay serves.
	balancings []survey.Balancing
}

func newExam(s *survey.Snapshot) *exam {
	x := &exam{Snapshot: s}
	if s.Saw(seesBook) && x.allocates() {
		x.book, x.bookErr = s.Book()
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
	return x
}

// onCloud: the machines are the cloud's. On metal nothing of a cloud is missing.
func (x *exam) onCloud() bool { return x.Config.Provider != config.Metal }

// inNetwork: the servers are to be in a private network.
func (x *exam) inNetwork() bool { return x.onCloud() && x.Config.Network != "" }

// routed: routes are to stand in the network.
func (x *exam) routed() bool { return x.inNetwork() && x.Config.Routes.Enabled }

func (x *exam) allocates() bool { return x.Config.IPAM.Enabled }

func (x *exam) balances() bool { return x.onCloud() && x.Config.LoadBalancers.Enabled }

// age is how long before the look something was.
func (x *exam) age(t time.Time) time.Duration { return x.Taken.Sub(t) }

// waiting is for how long a Node has existed, and whether that is too long to be
// without something.
func (x *exam) waiting(n *corev1.Node) (lasts time.Duration, tooLong bool) {
	age := x.age(n.CreationTimestamp.Time)
	return age, age > patience && n.DeletionTimestamp.IsZero()
}

func nodeObject(n *corev1.Node) string { return "Node/" + n.Name }

func serviceObject(s *corev1.Service) string { return "Service/" + s.Namespace + "/" + s.Name }
