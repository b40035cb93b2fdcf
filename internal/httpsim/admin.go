package httpsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Admin has the operator's endpoints. It requires no credentials and needs a separate listener.
type Admin struct {
	*http.ServeMux
	below string
}

// NewAdmin returns the endpoints that all simulators have: requests (the log) and faults.
func (s *Service) NewAdmin(below string) Admin {
	do := func(do func()) func(*http.Request) error {
		return func(*http.Request) error { do(); return nil }
	}
	a := Admin{http.NewServeMux(), below}
	a.Show("/requests", func() any { return map[string]any{"requests": s.Requests()} })
	a.Do("DELETE", "/requests", http.StatusBadRequest, do(s.ResetRequests))
	a.Do("POST", "/faults", http.StatusBadRequest, s.adminInject)
	a.Do("DELETE", "/faults", http.StatusBadRequest, do(s.ClearFaults))
	return a
}

func (s *Service) adminInject(r *http.Request) error {
	var fault struct {
		Fault
		Delay string `json:"delay"` // such as 1.5s
	}
	err := Decode(r, "fault", &fault)
	if err == nil && fault.Delay != "" {
		fault.Fault.Delay, err = time.ParseDuration(fault.Delay)
	}
	if err != nil {
		return err
	}
	return s.Inject(fault.Fault)
}

// Show registers a GET endpoint that returns a value as JSON.
func (a Admin) Show(path string, value func() any) {
	a.HandleFunc("GET "+a.below+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value()) // the client may have disconnected
	})
}

// Do registers an endpoint that replies without content, or with an error and the status failed.
func (a Admin) Do(method, path string, failed int, do func(*http.Request) error) {
	a.HandleFunc(method+" "+a.below+path, func(w http.ResponseWriter, r *http.Request) {
		if err := do(r); err != nil {
			http.Error(w, err.Error(), failed)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// Decode parses a request strictly: a fault with a misspelled field would otherwise never
// trigger. Errors contain what as the name of the object.
func Decode(r *http.Request, what string, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, MaxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
