package leadership_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/internal/leadership"
)

const within = 30 * time.Second

// server responds to each request when the test sends its result.
type server struct{ answers chan error }

// errFailed results in a server error.
var errFailed = errors.New("504")

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case err := <-s.answers:
		if errors.Is(err, errFailed) {
			return &http.Response{StatusCode: http.StatusGatewayTimeout, Body: http.NoBody}, nil
		}
		if err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// send sends a request in the background.
func send(ctx context.Context, rt http.RoundTripper, method string) <-chan error {
	ended := make(chan error, 1)
	r, err := http.NewRequestWithContext(ctx, method, "http://api.example/nodes/n1", nil)
	if err != nil {
		panic(err)
	}
	go func() {
		resp, err := rt.RoundTrip(r)
		if err == nil {
			err = resp.Body.Close()
		}
		ended <- err
	}()
	synctest.Wait()
	return ended
}

func TestClosedGateSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gate leadership.Gate
		rt := gate.Wrap(server{})
		if err := gate.Close(t.Context(), within); err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{http.MethodGet, http.MethodPatch} {
			if err := <-send(t.Context(), rt, method); !errors.Is(err, leadership.ErrClosed) {
				t.Errorf("%s: %v, want it refused", method, err)
			}
		}
	})
}

func TestCloseWaitsForAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gate leadership.Gate
		s := server{make(chan error)}
		watch, write := gate.Wrap(server{}), gate.Wrap(s)
		reading, cancel := context.WithCancel(t.Context())
		defer cancel()
		send(reading, watch, http.MethodGet) // no response, and no wait for one
		patch, create := send(t.Context(), write, http.MethodPatch), send(t.Context(), write,
			http.MethodPost)
		closed := make(chan error, 1)
		go func() { closed <- gate.Close(t.Context(), within) }()
		for _, ended := range []<-chan error{patch, create} {
			synctest.Wait()
			select {
			case err := <-closed:
				t.Fatalf("closed (%v) while a write was under way", err)
			default:
			}
			s.answers <- nil
			synctest.Wait()
			_ = ended
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for _, ended := range []<-chan error{patch, create} {
			if err := <-ended; err != nil {
				t.Errorf("a write that was under way: %v", err)
			}
		}
	})
}

func TestCloseReportsWritesThatMayArrive(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection reset by peer")
	for name, tt := range map[string]struct {
		write func(t *testing.T, rt http.RoundTripper, s server)
		later time.Duration
		safe  bool
	}{
		"one has no answer yet": {
			write: func(t *testing.T, rt http.RoundTripper, _ server) {
				send(t.Context(), rt, http.MethodPut)
			},
		},
		"one's answer was lost": {
			write: func(t *testing.T, rt http.RoundTripper, s server) {
				ended := send(t.Context(), rt, http.MethodPut)
				s.answers <- lost
				if err := <-ended; !errors.Is(err, lost) {
					t.Errorf("got %v, want %v", err, lost)
				}
			},
			later: within - time.Second,
		},
		"one was answered by a proxy that gave up": {
			write: func(t *testing.T, rt http.RoundTripper, s server) {
				ended := send(t.Context(), rt, http.MethodPost)
				s.answers <- errFailed
				<-ended
			},
		},
		"one's answer was lost long ago": {
			write: func(t *testing.T, rt http.RoundTripper, s server) {
				ended := send(t.Context(), rt, http.MethodPut)
				s.answers <- lost
				<-ended
			},
			later: within, safe: true,
		},
		"one was cut off by its caller": {
			write: func(t *testing.T, rt http.RoundTripper, _ server) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				<-send(ctx, rt, http.MethodDelete)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var gate leadership.Gate
				s := server{make(chan error)}
				tt.write(t, gate.Wrap(s), s)
				time.Sleep(tt.later)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := gate.Close(ctx, within); (err == nil) != tt.safe {
					t.Errorf("Close returned %v, want safe %t", err, tt.safe)
				}
			})
		})
	}
}
