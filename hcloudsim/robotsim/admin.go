package robotsim

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Admin is a handler for who runs the simulator rather than uses it. It asks for
// no credentials, so it belongs on a listener of its own.
//
//	GET    /_sim/robot/requests          the request log, oldest first
//	DELETE /_sim/robot/requests          empties it
//	GET    /_sim/robot/state             everything that exists: a snapshot
//	PUT    /_sim/robot/state             makes it so
//	POST   /_sim/robot/faults            injects a fault: the fields of Fault in
//	                                     snake_case, delay like "1.5s"
//	DELETE /_sim/robot/faults            takes back the faults that still wait
//	PUT    /_sim/robot/maintenance       {"maintenance": true}, or false
//	DELETE /_sim/robot/servers/{number}  a server vanishes
//	PUT    /_sim/robot/vswitches/{id}/servers/{number}
//	                                     {"status": "failed"}, ready or in process:
//	                                     what a server is in a vSwitch; empty: no
//	                                     member
func (s *Simulator) Admin() http.Handler {
	a := httpsim.NewAdmin("/_sim/robot", s, func() any { return append([]Request{}, s.Requests()...) }, s.adminInject)
	a.Do("PUT", "/maintenance", http.StatusBadRequest, s.adminMaintenance)
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

func (s *Simulator) adminMaintenance(r *http.Request) error {
	var req struct {
		Maintenance bool `json:"maintenance"`
	}
	if err := httpsim.Decode(r, "maintenance", &req); err != nil {
		return err
	}
	s.SetMaintenance(req.Maintenance)
	return nil
}

func (s *Simulator) adminSetMember(r *http.Request) error {
	var req struct {
		Status string `json:"status"`
	}
	if err := httpsim.Decode(r, "member", &req); err != nil {
		return err
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	number, problem := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err = errors.Join(err, problem); err != nil {
		return err
	}
	return s.SetMember(id, number, req.Status)
}
