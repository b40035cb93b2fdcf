package robotsim

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Simulator is one simulated account. Its methods are safe for concurrent use. Use [New].
type Simulator struct {
	// Service has the methods ServeHTTP and Transport for the web service, Requests and
	// ResetRequests for the request log, Inject and ClearFaults.
	httpsim.Service

	opts Options
	mux  *http.ServeMux

	mu          sync.Mutex // guards everything below
	user        string
	password    string
	maintenance bool
	account     *account
	quotas      map[string]*quota // by operation
	logins      map[string]*login // by client address
}

// Request is one entry of the request log, in the order of the replies.
type Request = httpsim.Request

// Fault is a failure injected into matching requests. A refusal applies after the login and the
// quota were accepted.
type Fault = httpsim.Fault

// New returns a Simulator with an empty account.
func New(opts Options) *Simulator {
	s := &Simulator{
		opts: opts, user: opts.User, password: opts.Password,
		account: newAccount(opts), quotas: newQuotas(opts), logins: map[string]*login{},
	}
	s.Service = httpsim.NewService(httpsim.Config{
		Mu: &s.mu, Latency: opts.Latency, LogSize: cmp.Or(opts.RequestLogSize, 100_000),
		OnRequest: opts.OnRequest, Perform: s.perform,
	})
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

// Admin returns a handler for the operator of the simulator. It requires no credentials, so it
// must have a separate listener.
//
//	GET    /_sim/robot/requests          the request log, oldest first
//	DELETE /_sim/robot/requests          clears the request log
//	POST   /_sim/robot/faults            injects a fault: the fields of Fault in
//	                                     snake_case, delay like "1.5s"
//	DELETE /_sim/robot/faults            removes pending faults
//	PUT    /_sim/robot/maintenance       {"maintenance": true}, or false
//	DELETE /_sim/robot/servers/{number}  deletes a server
//	PUT    /_sim/robot/vswitches/{id}/servers/{number}
//	                                     {"status": "failed"}, ready or in process:
//	                                     sets the member's status; empty removes
//	                                     the member
func (s *Simulator) Admin() http.Handler {
	a := s.NewAdmin("/_sim/robot")
	a.Do("PUT", "/maintenance", http.StatusBadRequest, func(r *http.Request) error {
		var req struct {
			Maintenance bool `json:"maintenance"`
		}
		if err := httpsim.Decode(r, "maintenance", &req); err != nil {
			return err
		}
		s.SetMaintenance(req.Maintenance)
		return nil
	})
	a.Do("DELETE", "/servers/{number}", http.StatusNotFound, func(r *http.Request) error {
		number, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
		if err != nil {
			return err
		}
		return s.RemoveServer(number)
	})
	a.Do("PUT", "/vswitches/{id}/servers/{number}", http.StatusBadRequest, s.adminSetMember)
	return a
}

func (s *Simulator) adminSetMember(r *http.Request) error {
	var req struct {
		Status string `json:"status"`
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	number, problem := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err := errors.Join(httpsim.Decode(r, "member", &req), err, problem); err != nil {
		return err
	}
	return s.SetMember(id, number, req.Status)
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
	random := rand.New(rand.NewPCG(opts.Seed, 0))
	return &account{opts: opts, now: time.Now(), lastID: firstID, rand: random}
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
}

// id returns the ID of a new resource: the given one, or an allocated one if it is 0.
func (a *account) id(given int64) int64 {
	if given == 0 {
		given = a.lastID + 1
	}
	a.lastID = max(a.lastID, given)
	return given
}
