package hcloudsim

import (
	"net/http"
	"strconv"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Admin is a handler for who runs the simulator rather than uses it: to look
// behind the API, and to let things go wrong. It asks for no token, so it
// belongs on a listener of its own.
//
//	GET    /_sim/requests      the request log, oldest first
//	DELETE /_sim/requests      empties it
//	GET    /_sim/state         everything that exists: a snapshot
//	PUT    /_sim/state         makes it so: restores a snapshot, an edited one too
//	GET    /_sim/dataplane     what traffic depends on, see DataPlane
//	POST   /_sim/faults        injects a fault: the fields of Fault in
//	                           snake_case, delay like "1.5s"
//	DELETE /_sim/faults        takes back the faults that still wait
//	DELETE /_sim/servers/{id}  a server vanishes
//	PUT    /_sim/load_balancers/{id}/health
//	                           fixes the health of a target: server or ip,
//	                           listen_port (none: all), status (none: no more)
func (s *Simulator) Admin() http.Handler {
	a := httpsim.NewAdmin("/_sim", s, func() any { return append([]Request{}, s.Requests()...) }, s.adminInject)
	a.Show("/dataplane", func() any { return s.DataPlane() })
	a.Do("PUT", "/load_balancers/{id}/health", http.StatusBadRequest, s.adminHealth)
	a.Do("DELETE", "/servers/{id}", http.StatusNotFound, func(r *http.Request) error {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			return err
		}
		return s.DeleteServer(id)
	})
	return a
}

func (s *Simulator) adminInject(r *http.Request) error {
	var fault struct {
		Fault
		Delay httpsim.Delay `json:"delay"`
	}
	if err := httpsim.Decode(r, "fault", &fault); err != nil {
		return err
	}
	fault.Fault.Delay = time.Duration(fault.Delay)
	return s.Inject(fault.Fault)
}

func (s *Simulator) adminHealth(r *http.Request) error {
	var req targetHealth
	if err := httpsim.Decode(r, "health", &req); err != nil {
		return err
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return err
	}
	return s.SetTargetFinding(id, req.key().target, req.ListenPort, req.finding())
}
