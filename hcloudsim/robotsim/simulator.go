package robotsim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Simulator is one simulated account. Its methods may be called from any
// goroutine. Use [New].
type Simulator struct {
	opts Options
	mux  *http.ServeMux

	mu          sync.Mutex // guards everything below
	user        string
	password    string
	maintenance bool
	account     *account
	quotas      map[string]*quota // by operation
	logins      map[string]*login // by address
	faults      httpsim.Faults[Fault]
	log         httpsim.Log[Request]
}

// New returns an empty account.
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

// SetCredentials replaces the accepted credentials, as a person does in Robot.
func (s *Simulator) SetCredentials(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user, s.password = user, password
}

// SetMaintenance begins or ends a maintenance: every request is answered 503.
func (s *Simulator) SetMaintenance(maintenance bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maintenance = maintenance
}

// present locks the simulator and returns the account as of now.
func (s *Simulator) present() (a *account, unlock func()) {
	s.mu.Lock()
	s.account.at(time.Now())
	return s.account, s.mu.Unlock
}

// account is what the customer has. Guarded by the Simulator's mutex.
type account struct {
	opts      Options
	now       time.Time
	servers   []*server // by number
	vSwitches []*vSwitch
	failovers []*failover
	lastID    int64
	count     uint32 // of public addresses given away
	rand      *rand.Rand
}

// firstID keeps IDs apart from those that seeds are likely to choose.
const firstID = 1000

func newAccount(opts Options) *account {
	return &account{opts: opts, now: time.Now(), lastID: firstID, rand: rand.New(rand.NewPCG(opts.Seed, 0))}
}

// at lets happen what time has brought about.
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
