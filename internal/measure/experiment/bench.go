package experiment

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/measure/robot"
)

// Programs prepares the programs inside servers.
type Programs interface {
	// Prepare returns what a new server is created with so that the program starts in it, and
	// what asks it there. Each server has its own.
	Prepare(server string) (userData string, at func(netip.Addr) Program, err error)
}

// Bench is what experiments are done with. What several of them need is made when the first asks
// for it, and shared; it stays until the project is swept. Experiments use a Bench one after the
// other.
type Bench struct {
	Project          *project.Project
	Location         string // of everything that is made
	ServerType       string
	Image            string
	LoadBalancerType string
	// Programs is nil in a run by the API alone.
	Programs Programs
	// Dedicated is nil without a dedicated server, Robot without the web service.
	Dedicated *Dedicated
	Robot     *robot.Client
	// Progress, if set, is told what is being done that takes more than a moment, in a line without
	// an end. Found, if set, is told what was seen of each fact, as soon as it is known.
	Progress func(string)
	Found    func(measure.Observation)

	wanted []measure.FactID
	shared shared
}

// shared is what has been made.
type shared struct {
	zone     hcloud.NetworkZone
	network  lazy[Network]
	scratch  lazy[Network]
	servers  [2]lazy[Server]
	balancer lazy[LoadBalancer]
}

// Wants reports whether a fact is to be found out, for experiments with several.
func (b *Bench) Wants(fact measure.FactID) bool { return slices.Contains(b.wanted, fact) }

// say tells what is being done.
func (b *Bench) say(format string, args ...any) {
	if b.Progress != nil {
		b.Progress(fmt.Sprintf(format, args...))
	}
}

// client is the project's.
func (b *Bench) client() *hcloud.Client { return b.Project.Client() }
