package httpsim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// snapshotMost is in bytes, sufficient for thousands of servers and their actions.
const snapshotMost = 256 << 20

// Admin has the operator's endpoints. It requires no credentials and needs a separate listener.
type Admin struct {
	*http.ServeMux
	below string
}

// Administered is a simulator with admin endpoints.
type Administered interface {
	ResetRequests()
	Snapshot() []byte
	Restore(snapshot []byte) error
	ClearFaults()
}

// NewAdmin returns the endpoints that all simulators have: requests (the log), state and faults.
func NewAdmin(
	below string, s Administered, requests func() any, inject func(*http.Request) error,
) Admin {
	done := func(do func()) func(*http.Request) error {
		return func(*http.Request) error { do(); return nil }
	}
	a := Admin{http.NewServeMux(), below}
	a.Show("/requests", func() any { return map[string]any{"requests": requests()} })
	a.Do("DELETE", "/requests", http.StatusBadRequest, done(s.ResetRequests))
	a.HandleFunc("GET "+below+"/state", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.Snapshot()) // the client may have disconnected
	})
	a.Do("PUT", "/state", http.StatusBadRequest, func(r *http.Request) error {
		snapshot, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, snapshotMost))
		if err != nil {
			return err
		}
		return s.Restore(snapshot)
	})
	a.Do("POST", "/faults", http.StatusBadRequest, inject)
	a.Do("DELETE", "/faults", http.StatusBadRequest, done(s.ClearFaults))
	return a
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

// Delay is a duration in JSON, like "1.5s"; empty means 0.
type Delay time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Delay) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("delay %q is no duration such as 1.5s", text)
	}
	*d = Delay(parsed)
	return nil
}
