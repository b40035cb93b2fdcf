package hcloudsim

import (
	"net/http"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Simulator is one simulated project. Its methods are safe for concurrent use. Use [New].
type Simulator struct {
	// Service has the methods ServeHTTP and Transport for the API below /v1, Requests and
	// ResetRequests for the request log, Inject and ClearFaults.
	httpsim.Service

	opts Options
	mux  *http.ServeMux

	mu      sync.Mutex // guards everything below
	token   string
	project *project
	// otherProject is the project behind another token, see Fault.OtherProject.
	otherProject *project
	budget       budget
	observer     observer
}

// Request is one entry of the request log.
type Request = httpsim.Request

// Fault is a failure injected into matching requests.
type Fault = httpsim.Fault

// New returns a Simulator with an empty project.
func New(opts Options) *Simulator {
	opts = opts.withDefaults()
	s := &Simulator{
		opts: opts, token: opts.Token, mux: routes(), project: newProject(opts),
		budget: budget{opts.RateLimit, opts.RateRefill, float64(opts.RateLimit), time.Now()},
	}
	s.Service = httpsim.NewService(httpsim.Config{
		Mu: &s.mu, Below: "/v1", Latency: opts.Latency, LogSize: opts.RequestLogSize,
		OnRequest: opts.OnRequest, Perform: s.perform,
	})
	return s
}

// SetToken replaces the accepted token, as a revocation or a rotation does.
func (s *Simulator) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// present locks the simulator and returns the project, advanced to the present.
func (s *Simulator) present() (p *project, unlock func()) {
	s.mu.Lock()
	s.project.at(time.Now())
	s.project.touched = true // callers may change the project
	return s.project, s.unlock
}
