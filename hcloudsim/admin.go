package hcloudsim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
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
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sim/requests", func(w http.ResponseWriter, _ *http.Request) {
		sendAdmin(w, map[string]any{"requests": append([]Request{}, s.Requests()...)})
	})
	mux.HandleFunc("DELETE /_sim/requests", func(w http.ResponseWriter, _ *http.Request) {
		s.ResetRequests()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /_sim/state", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.Snapshot()) // the client may be gone
	})
	mux.HandleFunc("PUT /_sim/state", s.adminRestore)
	mux.HandleFunc("GET /_sim/dataplane", func(w http.ResponseWriter, _ *http.Request) { sendAdmin(w, s.DataPlane()) })
	mux.HandleFunc("PUT /_sim/load_balancers/{id}/health", s.adminHealth)
	mux.HandleFunc("POST /_sim/faults", s.adminInject)
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_sim/servers/{id}", s.adminDeleteServer)
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
	NotJSON         bool   `json:"not_json"`
	Applied         bool   `json:"applied"`
	TornBody        bool   `json:"torn_body"`
	EmptyList       bool   `json:"empty_list"`
	PartialList     bool   `json:"partial_list"`
	OtherProject    bool   `json:"other_project"`
	DropBeforeApply bool   `json:"drop_before_apply"`
	DropAfterApply  bool   `json:"drop_after_apply"`
	FailAction      string `json:"fail_action"`
	LoseAction      bool   `json:"lose_action"`
}

func (s *Simulator) adminInject(w http.ResponseWriter, r *http.Request) {
	var req adminFault
	if !readAdmin(w, r, "fault", &req) {
		return
	}
	var delay time.Duration
	if req.Delay != "" {
		var err error
		if delay, err = time.ParseDuration(req.Delay); err != nil {
			http.Error(w, fmt.Sprintf("fault: delay %q is no duration such as 1.5s", req.Delay), http.StatusBadRequest)
			return
		}
	}
	err := s.Inject(Fault{
		Match: req.Match, Times: req.Times, Delay: delay,
		Status: req.Status, Code: req.Code, Message: req.Message,
		DropBeforeApply: req.DropBeforeApply, DropAfterApply: req.DropAfterApply,
		NotJSON: req.NotJSON, Applied: req.Applied, TornBody: req.TornBody,
		EmptyList: req.EmptyList, PartialList: req.PartialList, OtherProject: req.OtherProject,
		FailAction: req.FailAction, LoseAction: req.LoseAction,
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// snapshotMost is in bytes: thousands of servers and their actions.
const snapshotMost = 256 << 20

func (s *Simulator) adminRestore(w http.ResponseWriter, r *http.Request) {
	snapshot, err := io.ReadAll(http.MaxBytesReader(w, r.Body, snapshotMost))
	if err == nil {
		err = s.Restore(snapshot)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Simulator) adminHealth(w http.ResponseWriter, r *http.Request) {
	var req targetHealth
	if !readAdmin(w, r, "health", &req) {
		return
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err == nil {
		err = s.SetTargetFinding(id, req.key().target, req.ListenPort, req.finding())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
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

func (s *Simulator) adminDeleteServer(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err == nil {
		err = s.DeleteServer(id)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func sendAdmin(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
