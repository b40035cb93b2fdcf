package hcloudsim

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// snapshotMost is in bytes, sufficient for thousands of servers and their actions.
const snapshotMost = 256 << 20

// Admin returns a handler for the operator of the simulator, which exposes its internal state and
// injects faults. It requires no token, so it must have a separate listener.
//
//	GET    /_sim/requests      the request log, oldest first
//	DELETE /_sim/requests      clears the request log
//	GET    /_sim/state         a snapshot of all resources
//	PUT    /_sim/state         restores a snapshot, also an edited one
//	GET    /_sim/dataplane     the state that traffic depends on, see DataPlane
//	POST   /_sim/faults        injects a fault: the fields of Fault in
//	                           snake_case, delay like "1.5s"
//	DELETE /_sim/faults        removes pending faults
//	DELETE /_sim/servers/{id}  deletes a server
//	PUT    /_sim/load_balancers/{id}/health
//	                           fixes the health of a target: server or ip,
//	                           listen_port (absent: all), status (absent: unfix)
func (s *Simulator) Admin() http.Handler {
	a := s.NewAdmin("/_sim")
	a.Show("/state", func() any { return json.RawMessage(s.Snapshot()) })
	a.Do("PUT", "/state", http.StatusBadRequest, func(r *http.Request) error {
		content, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, snapshotMost))
		if err != nil {
			return err
		}
		return s.Restore(content)
	})
	a.Show("/dataplane", func() any { return s.DataPlane() })
	a.Do("PUT", "/load_balancers/{id}/health", http.StatusBadRequest, func(r *http.Request) error {
		var req struct {
			TargetID
			ListenPort int    `json:"listen_port"`
			Status     Health `json:"status"`
			Detail     Detail `json:"detail"`
			HTTPStatus int    `json:"http_status_code"`
		}
		if err := httpsim.Decode(r, "health", &req); err != nil {
			return err
		}
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			return err
		}
		finding := Finding{req.Status, req.Detail, req.HTTPStatus}
		return s.SetTargetFinding(id, req.TargetID, req.ListenPort, finding)
	})
	a.Do("DELETE", "/servers/{id}", http.StatusNotFound, func(r *http.Request) error {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			return err
		}
		return s.DeleteServer(id)
	})
	return a
}
