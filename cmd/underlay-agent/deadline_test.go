//go:build linux

package main

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRequestsHaveADeadline(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, &rest.Config{Host: "https://10.0.0.2:6443"}); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]options{"kubeconfig": {kubeconfig: kubeconfig}, "account": {apiServer: "https://10.0.0.2:6443"}} {
		to, err := o.restConfig()
		if err != nil {
			t.Fatal(err)
		}
		api := to.WrapTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			if until, has := r.Context().Deadline(); !has || time.Until(until) > time.Minute {
				t.Errorf("%s: the deadline is %s", name, until)
			}
			return nil, errors.New("no API server")
		}))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to.Host+"/api/v1/nodes", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.RoundTrip(r); err == nil {
			t.Error("an answer without an API server")
		}
	}
}
