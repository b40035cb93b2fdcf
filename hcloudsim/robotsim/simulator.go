package robotsim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Simulator is one simulated account. Its methods are safe for concurrent use. Use [New].
type Simulator struct {
	opts Options
	mux  *http.ServeMux

	mu          sync.Mutex // guards everything below
	user        string
	password    string
	maintenance bool
	account     *account
	quotas      map[string]*quota // by operation
	logins      map[string]*login // by client address
	faults      httpsim.Faults[Fault]
	log         httpsim.Log[Request]
}

// New returns a Simulator with an empty account.
func New(opts Options) *Simulator {
	opts = opts.withDefaults()
	s := &Simulator{
		opts: opts, user: opts.User, password: opts.Password,
		account: newAccount(opts), logins: map[string]*login{},
		log: httpsim.Log[Request]{Most: opts.RequestLogSize},
	}
	s.quotas = newQuotas(opts)
	s.mux = s.routes()
	return s
}

// SetCredentials replaces the accepted credentials, as a change in Robot does.
func (s *Simulator) SetCredentials(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user, s.password = user, password
}

// SetMaintenance begins or ends a maintenance, during which every request returns 503.
func (s *Simulator) SetMaintenance(maintenance bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maintenance = maintenance
}

// present locks the simulator and returns the account, advanced to the present.
func (s *Simulator) present() (a *account, unlock func()) {
	s.mu.Lock()
	s.account.at(time.Now())
	return s.account, s.mu.Unlock
}

// account holds the resources of the customer. The Simulator's mutex guards it.
type account struct {
	opts      Options
	now       time.Time
	servers   []*server // sorted by number
	vSwitches []*vSwitch
	failovers []*failover
	lastID    int64
	count     uint32 // number of allocated public addresses
	rand      *rand.Rand
}

// firstID separates allocated IDs from those that seeds are likely to use.
const firstID = 1000

func newAccount(opts Options) *account {
	return &account{opts: opts, now: time.Now(), lastID: firstID, rand: rand.New(rand.NewPCG(opts.Seed, 0))}
}

// at advances the account to the present and ends all changes that are due.
func (a *account) at(now time.Time) {
	a.now = now
	for _, f := range a.failovers {
		f.at(now)
	}
	for _, v := range a.vSwitches {
		v.at(now)
	}
	a.dropCancelled()
}

func (a *account) newID() int64 {
	a.lastID++
	return a.lastID
}
