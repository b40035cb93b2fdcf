package robotsim

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Admin returns a handler for the operator of the simulator. It requires no credentials, so it
// must have a separate listener.
//
//	GET    /_sim/robot/requests          the request log, oldest first
//	DELETE /_sim/robot/requests          clears the request log
//	GET    /_sim/robot/state             a snapshot of all resources
//	PUT    /_sim/robot/state             restores a snapshot
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
