package experiment

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/robot"
)

// Project makes and removes throw-away things: a *project.Project.
type Project interface {
	// Client speaks to the API with the run's rules around it, and tries nothing again.
	Client() *hcloud.Client
	// Name is a name for something of this run.
	Name(what string) string
	// Labels are those without which nothing may be made.
	Labels() map[string]string
	// Key is an SSH key that nobody has, for servers: without one a password is mailed.
	Key(context.Context) (*hcloud.SSHKey, error)
	// Await waits for the end of an action. It took so long from the reply that named it; a time
	// that isn't exact must not count.
	Await(context.Context, *hcloud.Action) (took time.Duration, exact bool, err error)
	// Took is how long the actions of the run took that were awaited, by command, as far as it is
	// known exactly.
	Took() map[string][]time.Duration
	// Latencies are how long the requests of the run took that read, without the time that they
	// waited to be sent.
	Latencies() []time.Duration
}

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
	Project          Project
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
	roles  roles
}

// shared is what has been made.
type shared struct {
	mu       sync.Mutex
	zone     hcloud.NetworkZone
	network  lazy[Network]
	scratch  lazy[Network]
	servers  map[int]*lazy[Server]
	prepared map[string]prepared // by the server's name
	answered map[int]error       // why the program in a server doesn't answer; nil: it did
	balancer lazy[LoadBalancer]
}

// roles say what has an address.
type roles struct {
	mu sync.Mutex // for itself: who is told of progress may ask
	of map[netip.Addr]string
}

// Wants reports whether a fact is to be found out, for experiments with several.
func (b *Bench) Wants(fact measure.FactID) bool { return slices.Contains(b.wanted, fact) }

// Addresses are those of what was made, with what has them, for people: reports don't show them.
func (b *Bench) Addresses() map[netip.Addr]string {
	b.roles.mu.Lock()
	defer b.roles.mu.Unlock()
	return maps.Clone(b.roles.of)
}

// note remembers the addresses of what was made.
func (b *Bench) note(role string, all ...netip.Addr) {
	b.roles.mu.Lock()
	defer b.roles.mu.Unlock()
	if b.roles.of == nil {
		b.roles.of = map[netip.Addr]string{}
	}
	for _, a := range all {
		if a.IsValid() {
			b.roles.of[a] = role
		}
	}
}

// say tells what is being done.
func (b *Bench) say(format string, args ...any) {
	if b.Progress != nil {
		b.Progress(fmt.Sprintf(format, args...))
	}
}

// client is the project's.
func (b *Bench) client() *hcloud.Client { return b.Project.Client() }
