package main

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/connectivity/cluster"
)

// writer is the client of connectivity: what it writes is in its own namespace.
func (o *options) writer() (kubernetes.Interface, error) {
	return o.clientThrough(func(next http.RoundTripper) http.RoundTripper { return writesThere{next} })
}

// writesThere is the last gate before the network for connectivity.
type writesThere struct{ next http.RoundTripper }

func (g writesThere) RoundTrip(request *http.Request) (*http.Response, error) {
	const namespaces = "/api/v1/namespaces"
	const own = namespaces + "/" + cluster.Namespace
	path := request.URL.Path
	// A server may be behind a path of its own.
	inside := strings.HasSuffix(path, own) || strings.Contains(path, own+"/")
	switch {
	case request.Method == http.MethodGet, request.Method == http.MethodPost && strings.HasSuffix(path, namespaces),
		inside && (request.Method == http.MethodPost || request.Method == http.MethodDelete):
		return g.next.RoundTrip(request)
	}
	return nil, fmt.Errorf("underlayctl connectivity writes in namespace %s alone, and does not send %s %s", cluster.Namespace, request.Method, path)
}
