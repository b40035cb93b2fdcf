package hcloudsim

import (
	"net/http"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Simulator is one simulated project. Its methods are safe for concurrent use. Use [New].
type Simulator struct {
	opts Options
	mux  *http.ServeMux

	mu      sync.Mutex // guards everything below
	token   string
	project *project
	// stranger is the project behind another token, see Fault.OtherProject.
	stranger *project
	budget   budget
	faults   httpsim.Faults[Fault]
	log      httpsim.Log[Request]

	observer observer
}

// New returns a Simulator with an empty project.
func New(opts Options) *Simulator {
	opts = opts.withDefaults()
	s := &Simulator{
		opts:    opts,
		token:   opts.Token,
		project: newProject(opts),
		budget:  newBudget(opts, time.Now()),
		log:     httpsim.Log[Request]{Most: opts.RequestLogSize},
	}
	s.mux = s.routes()
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
