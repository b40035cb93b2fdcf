package hcloudsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Admin is a handler for who runs the simulator rather than uses it: to look
// behind the API, and to let things go wrong. It asks for no token, so it
// belongs on a listener of its own.
//
//	GET    /_sim/requests      the request log, oldest first
//	DELETE /_sim/requests      empties it
//	GET    /_sim/state         everything that exists
//	POST   /_sim/faults        injects a fault: the fields of Fault in
//	                           snake_case, delay like "1.5s"
//	DELETE /_sim/faults        takes back the faults that still wait
//	DELETE /_sim/servers/{id}  a server vanishes
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
		sendAdmin(w, s.state())
	})
	mux.HandleFunc("POST /_sim/faults", s.adminInject)
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_sim/servers/{id}", s.adminDeleteServer)
	return mux
}

// state is everything that exists, as the API shows it.
func (s *Simulator) state() any {
	p, unlock := s.present()
	defer unlock()
	return struct {
		Servers       []serverBody       `json:"servers"`
		Networks      []networkBody      `json:"networks"`
		LoadBalancers []loadBalancerBody `json:"load_balancers"`
		Actions       []schema.Action    `json:"actions"`
	}{
		rendered(p.servers.rows, p.serverBody),
		rendered(p.networks.rows, p.networkBody),
		rendered(p.loadBalancers.rows, p.loadBalancerBody),
		rendered(p.actions.all, p.renderAction),
	}
}

// adminFault is Fault as JSON.
type adminFault struct {
	Match           string `json:"match"`
	Times           int    `json:"times"`
	Delay           string `json:"delay"`
	Status          int    `json:"status"`
	Code            string `json:"code"`
	Message         string `json:"message"`
	DropBeforeApply bool   `json:"drop_before_apply"`
	DropAfterApply  bool   `json:"drop_after_apply"`
	FailAction      string `json:"fail_action"`
}

func (s *Simulator) adminInject(w http.ResponseWriter, r *http.Request) {
	var req adminFault
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&req); err != nil {
		http.Error(w, fmt.Sprintf("fault: %v", err), http.StatusBadRequest)
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
		FailAction: req.FailAction,
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
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
