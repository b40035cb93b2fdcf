package robotsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
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
	mux := http.NewServeMux()
	done := func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
	mux.HandleFunc("GET /_sim/robot/requests", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"requests": append([]Request{}, s.Requests()...)}) // the client may be gone
	})
	mux.HandleFunc("DELETE /_sim/robot/requests", func(w http.ResponseWriter, _ *http.Request) { s.ResetRequests(); done(w) })
	mux.HandleFunc("GET /_sim/robot/state", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.Snapshot()) // the client may be gone
	})
	mux.HandleFunc("PUT /_sim/robot/state", s.adminRestore)
	mux.HandleFunc("POST /_sim/robot/faults", s.adminInject)
	mux.HandleFunc("DELETE /_sim/robot/faults", func(w http.ResponseWriter, _ *http.Request) { s.ClearFaults(); done(w) })
	mux.HandleFunc("PUT /_sim/robot/maintenance", s.adminMaintenance)
	mux.HandleFunc("DELETE /_sim/robot/servers/{number}", s.adminRemoveServer)
	mux.HandleFunc("PUT /_sim/robot/vswitches/{id}/servers/{number}", s.adminSetMember)
	return mux
}

// adminFault is Fault as JSON.
type adminFault struct {
	Match           string `json:"match"`
	Times           int    `json:"times"`
	Delay           string `json:"delay"`
	Status          int    `json:"status"`
	Code            string `json:"code"`
	Message         string `json:"message"`
	EmptyList       bool   `json:"empty_list"`
	PartialList     bool   `json:"partial_list"`
	FailChange      bool   `json:"fail_change"`
	DropBeforeApply bool   `json:"drop_before_apply"`
	DropAfterApply  bool   `json:"drop_after_apply"`
}

func (s *Simulator) adminInject(w http.ResponseWriter, r *http.Request) {
	var req adminFault
	if !readAdmin(w, r, "fault", &req) {
		return
	}
	var delay time.Duration
	var err error
	if req.Delay != "" {
		if delay, err = time.ParseDuration(req.Delay); err != nil {
			http.Error(w, fmt.Sprintf("fault: delay %q is no duration such as 1.5s", req.Delay), http.StatusBadRequest)
			return
		}
	}
	err = s.Inject(Fault{
		Match: req.Match, Times: req.Times, Delay: delay, Status: req.Status, Code: req.Code, Message: req.Message,
		EmptyList: req.EmptyList, PartialList: req.PartialList, FailChange: req.FailChange,
		DropBeforeApply: req.DropBeforeApply, DropAfterApply: req.DropAfterApply,
	})
	answerAdmin(w, err, http.StatusBadRequest)
}

// snapshotMost is in bytes.
const snapshotMost = 64 << 20

func (s *Simulator) adminRestore(w http.ResponseWriter, r *http.Request) {
	snapshot, err := io.ReadAll(http.MaxBytesReader(w, r.Body, snapshotMost))
	if err == nil {
		err = s.Restore(snapshot)
	}
	answerAdmin(w, err, http.StatusBadRequest)
}

func (s *Simulator) adminMaintenance(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Maintenance bool `json:"maintenance"`
	}
	if readAdmin(w, r, "maintenance", &req) {
		s.SetMaintenance(req.Maintenance)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Simulator) adminRemoveServer(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err == nil {
		err = s.RemoveServer(number)
	}
	answerAdmin(w, err, http.StatusNotFound)
}

func (s *Simulator) adminSetMember(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Status string `json:"status"`
	}
	if !readAdmin(w, r, "member", &req) {
		return
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	number, problem := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err = errors.Join(err, problem); err == nil {
		err = s.SetMember(id, number, req.Status)
	}
	answerAdmin(w, err, http.StatusBadRequest)
}

func answerAdmin(w http.ResponseWriter, err error, status int) {
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// readAdmin reads a request strictly: a misspelled field would otherwise be a
// fault that never happens.
func readAdmin(w http.ResponseWriter, r *http.Request, what string, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		http.Error(w, fmt.Sprintf("%s: %v", what, err), http.StatusBadRequest)
		return false
	}
	return true
}
